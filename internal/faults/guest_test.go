//go:build failpoint

package faults

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/guest/execclient"
	"github.com/billethq/billet/internal/road"
)

// image has the image "base" made of one busybox under many names.
func (w *world) image(busybox string) {
	w.t.Helper()
	body, err := busyboxRoot(busybox)
	if err != nil {
		w.t.Fatal(err)
	}
	await(w.t, "image", func() error { return w.buildImage(body) }) // the road may not be there yet
}

func (w *world) buildImage(body []byte) error {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		a, err := w.client.AttachImages(ctx, api.AttachImagesRequest{Name: "base", Kind: api.ImageStream})
		if err != nil {
			return nil, err
		}
		return road.Dial(ctx, a)
	}}
	defer transport.CloseIdleConnections()
	q := url.Values{"name": {"base"}, "kind": {string(api.ImageStream)}, "source": {"busybox"}}
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, "http://node"+api.ImagesPath+"?"+q.Encode(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := json.NewDecoder(resp.Body)
	for {
		var l api.ImageLine
		if err := lines.Decode(&l); err != nil {
			return err
		}
		if l.Problem != nil {
			return fmt.Errorf("build image: %s", l.Problem.Detail)
		}
		if l.Image != nil {
			return nil
		}
	}
}

func busyboxRoot(busybox string) ([]byte, error) {
	body, err := os.ReadFile(busybox)
	if err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	add := func(h tar.Header, b []byte) {
		h.Size = int64(len(b))
		if err == nil {
			err = w.WriteHeader(&h)
		}
		if err == nil {
			_, err = w.Write(b)
		}
	}
	for _, d := range []string{"bin/", "etc/", "root/", "tmp/"} {
		add(tar.Header{Name: d, Typeflag: tar.TypeDir, Mode: 0o755}, nil)
	}
	add(tar.Header{Name: "bin/busybox", Typeflag: tar.TypeReg, Mode: 0o755}, body)
	for _, n := range []string{"sh", "cat", "dd", "sha256sum", "sleep", "sync", "tail", "touch", "rm", "ls", "true"} {
		add(tar.Header{Name: "bin/" + n, Typeflag: tar.TypeSymlink, Linkname: "busybox"}, nil)
	}
	add(tar.Header{Name: "etc/passwd", Typeflag: tar.TypeReg, Mode: 0o644}, []byte("root:x:0:0:root:/root:/bin/sh\n"))
	add(tar.Header{Name: "etc/group", Typeflag: tar.TypeReg, Mode: 0o644}, []byte("root:x:0:\n"))
	if err == nil {
		err = w.Close()
	}
	return buf.Bytes(), err
}

// session is one exec of a shell script.
type session struct {
	out  bytes.Buffer
	err  bytes.Buffer
	code int
}

// run runs a script in the guest to its end, over as many connections as it
// takes.
func (w *world) run(ctx context.Context, name, script string, stdin io.Reader, stdout io.Writer) (session, error) {
	var s session
	c, err := execclient.New(execclient.Config{Dial: w.dial(name), Log: slog.New(slog.DiscardHandler), Window: patience})
	if err != nil {
		return s, err
	}
	out := io.Writer(&s.out)
	if stdout != nil {
		out = io.MultiWriter(out, stdout)
	}
	s.code, err = c.Run(ctx, execclient.Command{Args: []string{"/bin/sh", "-c", script}, User: "root", Stdin: stdin, Stdout: out, Stderr: &s.err})
	return s, err
}

// sh runs a script that must end well, and returns what it said.
func (w *world) sh(name, script string) string {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	s, err := w.run(ctx, name, script, nil, nil)
	if err != nil || s.code != 0 {
		w.t.Fatalf("exec in %s: %s\ncode %d, %v, stderr %s", name, script, s.code, err, s.err.String())
	}
	return s.out.String()
}

// write makes a file of random bytes in the guest and syncs it. From here on
// its hash is acknowledged: it may never be lost again.
func (w *world) write(name, file string) {
	w.t.Helper()
	w.acked[file] = w.sh(name, fmt.Sprintf("dd if=/dev/urandom of=/root/%[1]s bs=64k count=8 conv=fsync 2>/dev/null && sha256sum /root/%[1]s", file))
}

// holds wants every acknowledged byte to be in the guest.
// invariant 12
func (w *world) holds(name string) {
	w.t.Helper()
	for file, want := range w.acked {
		if got := w.sh(name, "sha256sum /root/"+file); got != want {
			w.t.Errorf("acknowledged file %s: got %q, want %q", file, strings.TrimSpace(got), strings.TrimSpace(want))
		}
	}
}
