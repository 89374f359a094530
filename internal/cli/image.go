package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/errs"
)

func (a *app) image() *cobra.Command {
	return group("image", "Work with images", a.imageImport(), a.imageBuild(), a.imageLs(), a.imageShow(), a.imageRm())
}

func (a *app) imageLs() *cobra.Command {
	c := &cobra.Command{Use: "ls", Short: "List images", Args: arguments(0, 0)}
	header := []string{"NAME", "ROOT", "DISK", "USED", "STORED", "AGE", "SOURCE"}
	return listing(a, c, header, plainly((*api.Client).Images), func(now time.Time, i api.Image) []string {
		return []string{i.Name, i.Root.Short(), bytesText(i.DiskBytes), bytesText(i.UsedBytes), bytesText(i.StoredBytes), age(now, i.Updated), i.Source}
	})
}

func (a *app) imageShow() *cobra.Command {
	c := &cobra.Command{Use: "show NAME", Short: "Show an image and its generations", Args: arguments(1, 1), ValidArgsFunction: first(a.imageNames())}
	json := jsonFlag(c)
	c.RunE = a.calling(func(ctx context.Context, client *api.Client, args []string) error {
		i, err := client.Image(ctx, args[0])
		if err != nil {
			return err
		}
		if *json {
			return a.printJSON(i)
		}
		now := clock.Real{}.Now()
		err = a.fields("name", i.Name, "id", string(i.ID), "root", string(i.Root), "source", i.Source,
			"disk", bytesText(i.DiskBytes)+", "+bytesText(i.UsedBytes)+" used, "+bytesText(i.StoredBytes)+" stored", "created", age(now, i.Created)+" ago")
		if err != nil || len(i.Generations) < 2 {
			return err
		}
		rows := make([][]string, 0, len(i.Generations))
		for _, g := range i.Generations {
			rows = append(rows, []string{g.Root.Short(), bytesText(g.UsedBytes), bytesText(g.StoredBytes), age(now, g.Created), g.Source})
		}
		if err := a.line(""); err != nil {
			return err
		}
		return a.table([]string{"GENERATION", "USED", "STORED", "AGE", "SOURCE"}, rows)
	})
	return c
}

func (a *app) imageRm() *cobra.Command {
	return &cobra.Command{
		Use: "rm NAME", Short: "Forget an image; workspaces made from it keep their content", Args: arguments(1, 1), ValidArgsFunction: first(a.imageNames()),
		RunE: a.calling(func(ctx context.Context, c *api.Client, args []string) error { return c.DeleteImage(ctx, args[0]) }),
	}
}

func (a *app) imageBuild() *cobra.Command {
	var disk int64
	c := &cobra.Command{
		Use: "build debian NAME", Short: "Make an image by bootstrapping a Debian",
		Args: arguments(2, 2), ValidArgs: []string{"debian"},
	}
	c.Flags().Var((*size)(&disk), "disk", "size of the image's disk, such as 4GiB; default: the node's choice")
	json := jsonFlag(c)
	c.RunE = a.calling(func(ctx context.Context, client *api.Client, args []string) error {
		if args[0] != "debian" {
			return errs.New(errs.Invalid, "an image of %q cannot be built", args[0]).WithHint("write: billet image build debian NAME")
		}
		return a.buildImage(ctx, client, build{name: args[1], kind: api.ImageDebian, disk: disk}, *json)
	})
	return c
}
