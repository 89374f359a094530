package cli

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/guest/archive"
	"github.com/billethq/billet/internal/guest/execclient"
	"github.com/billethq/billet/internal/guest/guestpath"
)

func (a *app) wsCp() *cobra.Command {
	var user string
	c := &cobra.Command{
		Use: "cp SRC NAME:DST | NAME:SRC DST", Short: "Copy a file or directory into a workspace or out of it",
		Long: `Copy a file or directory, with the meaning of cp -r: into DST when it is a directory, else
as DST. Relative paths in the workspace begin at the user's home. A local path with a
colon is written ./a:b.`,
		Args: arguments(2, 2),
	}
	c.Flags().StringVarP(&user, "user", "u", "", "copy as this user; default: the workspace's")
	c.RunE = a.calling(func(ctx context.Context, client *api.Client, args []string) error {
		src, dst := parsePlace(args[0]), parsePlace(args[1])
		switch {
		case src.workspace == "" && dst.workspace == "":
			return errs.New(errs.Invalid, "neither side is in a workspace").WithHint("write NAME:PATH for one of them")
		case src.workspace != "" && dst.workspace != "":
			return errs.New(errs.Invalid, "both sides are in a workspace").WithHint("copy to this machine first")
		case src.workspace == "":
			return a.copyIn(ctx, client, src.path, dst, user)
		}
		return a.copyOut(ctx, client, src, dst.path, user)
	})
	return c
}

// place is one side of a copy.
type place struct{ workspace, path string }

// parsePlace takes what stands before the first colon for a workspace, unless
// it has a slash.
func parsePlace(s string) place {
	name, path, found := strings.Cut(s, ":")
	if !found || name == "" || strings.Contains(name, "/") {
		return place{path: s}
	}
	return place{workspace: name, path: orElse(path, ".")}
}

// errPeerEnded breaks the pipe of an end whose other end has ended.
var errPeerEnded = errors.New("the other end of the copy has ended")

func (a *app) copyIn(ctx context.Context, c *api.Client, src string, dst place, user string) error {
	if _, err := os.Lstat(src); errors.Is(err, fs.ErrNotExist) {
		return errs.New(errs.NotFound, "there is no %s on this machine", src).WithHint("check the path")
	}
	guest, err := a.guest(ctx, c, dst.workspace)
	if err != nil {
		return err
	}
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := archive.Pack(w, []string{src}, func(err error) { a.note("not copied: %v", err) })
		// An archive that broke off lacks its end, by which the other side
		// knows; one with left-outs is whole.
		_ = w.Close()
		packed <- err
	}()
	meter := a.meter()
	defer meter.end()
	code, err := guest.Run(ctx, execclient.Command{
		Args: []string{guestpath.Binary, "unpack", dst.path}, User: user,
		Stdin: meter.reader(r), Stdout: a.Err, Stderr: a.Err,
	})
	_ = r.CloseWithError(errPeerEnded)
	// What failed here made the other side fail, not the other way round.
	if local := <-packed; local != nil && !errors.Is(local, errPeerEnded) {
		return errs.Wrap(errs.Conflict, local, "copy from this machine")
	}
	return remoteCopy(code, err)
}

func (a *app) copyOut(ctx context.Context, c *api.Client, src place, dst, user string) error {
	guest, err := a.guest(ctx, c, src.workspace)
	if err != nil {
		return err
	}
	r, w := io.Pipe()
	unpacked := make(chan error, 1)
	go func() {
		err := archive.Unpack(r, dst)
		if err == nil {
			_, err = io.Copy(io.Discard, r)
		}
		_ = r.CloseWithError(orError(err, errPeerEnded))
		unpacked <- err
	}()
	meter := a.meter()
	defer meter.end()
	code, err := guest.Run(ctx, execclient.Command{
		Args: []string{guestpath.Binary, "pack", src.path}, User: user,
		Stdout: meter.writer(w), Stderr: a.Err,
	})
	// An archive that was cut off must not look like a whole one.
	_ = w.CloseWithError(orError(err, io.EOF))
	local := <-unpacked
	if remote := remoteCopy(code, err); remote != nil && (local == nil || !errors.Is(remote, local)) {
		return remote
	}
	return errs.Wrap(errs.Conflict, local, "copy to this machine")
}

// remoteCopy is what the workspace's end of a copy says.
func remoteCopy(code int, err error) error {
	if err == nil && code != 0 {
		return errs.New(errs.Conflict, "the copy in the workspace ended with code %d", code).WithHint("what stands above says why")
	}
	return err
}

func orError(err, other error) error {
	if err != nil {
		return err
	}
	return other
}
