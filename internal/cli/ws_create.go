package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/config"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

func (a *app) wsCreate() *cobra.Command {
	var req api.CreateWorkspaceRequest
	c := &cobra.Command{
		Use:   "create [NAME]",
		Short: "Make a workspace and start it",
		Args:  arguments(0, 1),
	}
	f := c.Flags()
	f.StringVar(&req.Tier, "tier", "", "its shape; default: the first configured (see: billet tier ls)")
	f.StringVar((*string)(&req.Class), "class", "", "who is waiting: human, agent or ci; default: your own")
	f.StringVar(&req.Image, "image", "", "what its disk begins with; default: the tier's")
	f.Var((*size)(&req.Disk), "disk", "size of its disk, such as 32GiB; default: the tier's")
	f.BoolVar(&req.Stopped, "stopped", false, "do not start it")
	completeFlag(c, "tier", a.tierNames())
	completeFlag(c, "image", a.imageNames())
	completeFlag(c, "class", oneOf("human", "agent", "ci"))
	noWait, json := waitFlag(c), jsonFlag(c)
	c.RunE = a.calling(func(ctx context.Context, client *api.Client, args []string) error {
		if len(args) == 1 {
			req.Name = args[0]
			// An empty name would be given another one.
			if err := model.CheckName("workspace", req.Name); err != nil {
				return err
			}
		}
		ws, err := client.CreateWorkspace(ctx, model.NewID(), req)
		if err != nil {
			return err
		}
		ws, err = a.settle(ctx, client, ws, api.UntilSettled, *noWait)
		if err != nil {
			return err
		}
		return a.answer(ws, *json)
	})
	return c
}

// size is a flag with a size above zero.
type size int64

func (s *size) String() string {
	if *s == 0 {
		return ""
	}
	return config.FormatSize(int64(*s))
}

func (s *size) Set(text string) error {
	n, err := config.ParseSize(text)
	if err != nil {
		return err
	}
	if n == 0 {
		return errs.New(errs.Invalid, "a size of zero is none")
	}
	*s = size(n)
	return nil
}

func (*size) Type() string { return "size" }
