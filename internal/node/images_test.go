package node

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/road"
)

// readingBuilder makes an image of whatever it reads.
type readingBuilder struct{}

func (readingBuilder) Build(_ context.Context, req ImageRequest, input io.Reader, _ func(api.ImageProgress)) (ImageResult, error) {
	_, err := io.Copy(io.Discard, input)
	return ImageResult{Root: rootOf(req.Name), Source: req.Source}, err
}

// A ticket is for one image: with it nothing is made that the control plane
// has not allowed, and what is made is told with whom it belongs to.
func TestImages_TicketNamesTheImage(t *testing.T) {
	w := newWorld(t)
	w.images = readingBuilder{}
	l := w.start()
	ticket := road.Ticket{Target: road.TargetImages, Image: "mine", Kind: api.ImageStream, Principal: "ann", Owner: "ann"}
	for _, c := range []struct {
		query string
		want  errs.Kind
	}{
		{"name=mine&kind=stream", ""},
		{"name=base&kind=stream", errs.Denied},
		{"name=mine&kind=debian", errs.Denied},
		{"name=mine&kind=oci&source=x", errs.Denied},
		{"name=mine&name=base&kind=stream", ""}, // the first counts
	} {
		transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return l.node.images.open(ctx, ticket)
		}}
		res, err := (&http.Client{Transport: transport}).Post("http://node"+api.ImagesPath+"?"+c.query, "", strings.NewReader("input"))
		if err != nil {
			t.Fatal(err)
		}
		var line api.ImageLine
		if err := json.NewDecoder(res.Body).Decode(&line); err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		transport.CloseIdleConnections()
		var got errs.Kind
		if line.Problem != nil {
			got = errs.KindOf(line.Problem.Err())
		}
		if got != c.want {
			t.Errorf("%s: got %+v, want kind %q", c.query, line, c.want)
		}
	}
	w.change(func() {
		if len(w.plane.images) != 2 {
			t.Errorf("%d images were made, want the 2 that were allowed", len(w.plane.images))
		}
		for _, req := range w.plane.images {
			if req.Image != "mine" || req.Principal != "ann" || req.Owner != "ann" {
				t.Errorf("committed %+v, want image mine of ann", req)
			}
		}
	})
}
