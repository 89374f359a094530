package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/image"
	"github.com/billethq/billet/internal/model"
	"github.com/billethq/billet/internal/road"
)

// maxImageLine bounds one line of a build's answer.
const maxImageLine = 1 << 20

func (a *app) imageImport() *cobra.Command {
	var disk int64
	c := &cobra.Command{
		Use: "import SOURCE [NAME]", Short: "Make an image from a container image, an archive or a directory",
		Long: `Make an image from SOURCE: a reference of a container image (which the node pulls), or
what lies on this machine: a directory, an OCI layout, the archive of "docker save", or
a tar of a root file system, plain or packed by gzip, zstd or bzip2. Without NAME it is
named after SOURCE.`,
		Args: arguments(1, 2),
	}
	c.Flags().Var((*size)(&disk), "disk", "size of the image's disk, such as 4GiB; default: the node's choice")
	json := jsonFlag(c)
	c.RunE = a.calling(func(ctx context.Context, client *api.Client, args []string) error {
		src, err := image.OpenSource(args[0])
		if err != nil {
			return err
		}
		if src.ReadCloser != nil {
			defer src.Close()
		}
		name := ""
		if len(args) == 2 {
			name = args[1]
		} else if name, err = src.ImageName(); err != nil {
			return err
		}
		return a.buildImage(ctx, client, build{name: name, kind: src.Kind, source: src.Name, disk: disk, size: src.Size, input: src.ReadCloser}, *json)
	})
	return c
}

// build is what a node is asked for.
type build struct {
	name   string
	kind   api.ImageKind
	source string
	disk   int64
	size   int64 // of input; 0 or less: unknown
	input  io.Reader
}

// buildImage asks a node, over the road, for an image, and prints its name.
// Ctrl-C ends the build.
func (a *app) buildImage(ctx context.Context, c *api.Client, b build, asJSON bool) error {
	if err := model.CheckName("image", b.name); err != nil {
		return err
	}
	ctx, stop := untilInterrupt(ctx)
	defer stop()
	img, err := a.streamImage(ctx, c, b)
	if errors.Is(context.Cause(ctx), errDetached) && err != nil {
		a.note("given up: no image was made")
		return &exit{code: exitDetached}
	}
	if err != nil {
		return err
	}
	if asJSON {
		return a.printJSON(img)
	}
	a.note("image %s: %s used, %s stored", img.Name, bytesText(img.UsedBytes), bytesText(img.StoredBytes))
	return a.line(img.Name)
}

func (a *app) streamImage(ctx context.Context, c *api.Client, b build) (api.Image, error) {
	at, err := c.AttachImages(ctx, api.AttachImagesRequest{Name: b.name, Kind: b.kind})
	if err != nil {
		return api.Image{}, err
	}
	q := url.Values{"name": {b.name}, "kind": {string(b.kind)}, "source": {b.source}}
	if b.disk > 0 {
		q.Set("disk", strconv.FormatInt(b.disk, 10))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://node"+api.ImagesPath+"?"+q.Encode(), b.input)
	if err != nil {
		return api.Image{}, errs.Wrap(errs.Internal, err, "ask for the image")
	}
	transport := &http.Transport{
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return road.Dial(ctx, at) },
		DisableCompression: true,
	}
	defer transport.CloseIdleConnections()
	res, err := transport.RoundTrip(req)
	if err != nil {
		return api.Image{}, roadError(ctx, err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return api.Image{}, errs.New(errs.Unavailable, "the node answered %s", res.Status)
	}
	return a.readImage(ctx, res.Body, b.size)
}

// roadError keeps the kind of an error of ours and gives one to others.
func roadError(ctx context.Context, err error) error {
	var known *errs.Error
	switch {
	case errors.As(err, &known):
		return known
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return errs.Wrap(errs.Unavailable, err, "the road to the node broke")
}

// readImage reads the lines of a build to its end. total is the size of the
// input, which the node does not know.
func (a *app) readImage(ctx context.Context, r io.Reader, total int64) (api.Image, error) {
	show := a.stages(total)
	defer show.end()
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 4096), maxImageLine)
	for lines.Scan() {
		var l api.ImageLine
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return api.Image{}, errs.Wrap(errs.Internal, err, "decode the node's answer")
		}
		switch {
		case l.Problem != nil:
			return api.Image{}, l.Problem.Err()
		case l.Image != nil:
			return *l.Image, nil
		case l.Progress != nil:
			show.progress(*l.Progress)
		}
	}
	return api.Image{}, roadError(ctx, orError(lines.Err(), io.ErrUnexpectedEOF))
}

// stages shows a build's progress: as a meter on a terminal, else a line for
// each stage.
type stages struct {
	*meter
	total int64
	stage string
}

func (a *app) stages(total int64) *stages { return &stages{meter: a.meter(), total: total} }

func (s *stages) progress(p api.ImageProgress) {
	if p.Total == 0 && p.Stage == image.StageFetching {
		p.Total = s.total
	}
	if s.live {
		s.set(orElse(plain(p.Stage), "working"), p.Done, p.Total)
		return
	}
	if p.Stage != s.stage {
		s.stage = p.Stage
		s.app.note("%7s  %s", seconds(s.began.Elapsed()), p.Stage)
	}
}
