package node

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
	"github.com/billethq/billet/internal/road"
)

// ImageBuilder turns a source into an uploaded image generation.
type ImageBuilder interface {
	Build(ctx context.Context, req ImageRequest, input io.Reader, progress func(api.ImageProgress)) (ImageResult, error)
}

// ImageRequest asks for one build.
type ImageRequest struct {
	Name   string
	Kind   api.ImageKind
	Source string
	Disk   int64             // bytes; 0: the default
	Keys   []model.DomainKey //
	// Principal asked for it and Owner will own it; both "": the node itself.
	Principal, Owner model.PrincipalID
}

// ImageResult is an uploaded generation that waits for its commit.
type ImageResult struct {
	Root                              model.Root
	Source                            string
	DiskBytes, UsedBytes, StoredBytes int64
}

// imageDoor serves the image stream on connections that come off the road.
type imageDoor struct {
	node   *Node
	conns  chan ticketed
	closed chan struct{}
	once   sync.Once

	mu       sync.Mutex
	stopping bool
	builds   sync.WaitGroup // added to under mu, while not stopping
}

func newImageDoor(n *Node) *imageDoor {
	return &imageDoor{node: n, conns: make(chan ticketed), closed: make(chan struct{})}
}

// ticketed is a connection with the ticket that opened it.
type ticketed struct {
	net.Conn
	ticket road.Ticket
}

type ticketKey struct{}

// open returns the client's end of a new connection to the door.
func (d *imageDoor) open(ctx context.Context, t road.Ticket) (net.Conn, error) {
	if d.node.cfg.Images == nil {
		return nil, errs.New(errs.Unsupported, "node %s builds no images", d.node.cfg.Name)
	}
	ours, theirs := net.Pipe()
	select {
	case d.conns <- ticketed{ours, t}:
		return theirs, nil
	case <-d.closed:
	case <-ctx.Done():
	}
	_ = ours.Close()
	_ = theirs.Close()
	return nil, errs.New(errs.Unavailable, "node %s is stopping", d.node.cfg.Name).WithHint("try again in a moment")
}

// Accept implements net.Listener over the road.
func (d *imageDoor) Accept() (net.Conn, error) {
	select {
	case c := <-d.conns:
		return c, nil
	case <-d.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (d *imageDoor) Close() error {
	d.once.Do(func() { close(d.closed) })
	return nil
}

// Addr implements net.Listener.
func (d *imageDoor) Addr() net.Addr { return roadAddr{} }

type roadAddr struct{}

func (roadAddr) Network() string { return "road" }
func (roadAddr) String() string  { return "images" }

// serve answers until ctx ends; builds under way are ended with it, and waited
// for, since they have mounts and files to clear away.
func (d *imageDoor) serve(ctx context.Context) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+api.ImagesPath, d.build)
	srv := &http.Server{
		Handler: mux, BaseContext: func(net.Listener) context.Context { return ctx }, ReadHeaderTimeout: 10 * time.Second,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, ticketKey{}, c.(ticketed).ticket)
		},
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := srv.Serve(d); err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			d.node.cfg.Log.Error("image door", "err", err)
		}
	}()
	<-ctx.Done()
	_ = srv.Close()
	<-done
	d.mu.Lock()
	d.stopping = true
	d.mu.Unlock()
	d.builds.Wait()
}

// enter counts a build in, unless the door is closing.
func (d *imageDoor) enter() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopping {
		return false
	}
	d.builds.Add(1)
	return true
}

// build answers one request with lines, the last of which says how it ended.
func (d *imageDoor) build(w http.ResponseWriter, r *http.Request) {
	if !d.enter() {
		return // its connection is closed already
	}
	defer d.builds.Done()
	w.Header().Set("Content-Type", "application/x-ndjson")
	out := &lineWriter{enc: json.NewEncoder(w), flush: http.NewResponseController(w)}
	// Progress goes out while the input still comes in.
	_ = out.flush.EnableFullDuplex()
	img, err := d.run(r, out)
	if err != nil {
		p := api.ProblemOf(err)
		out.line(api.ImageLine{Problem: &p})
		return
	}
	out.line(api.ImageLine{Image: &img})
}

func (d *imageDoor) run(r *http.Request, out *lineWriter) (api.Image, error) {
	req, err := d.request(r)
	if err != nil {
		return api.Image{}, err
	}
	// What the control plane has allowed is this image and no other.
	t, _ := r.Context().Value(ticketKey{}).(road.Ticket)
	if t.Image != req.Name || t.Kind != req.Kind {
		return api.Image{}, errs.New(errs.Denied, "the ticket is for image %q from %q", t.Image, string(t.Kind)).WithHint("ask for a new attachment")
	}
	req.Principal, req.Owner = t.Principal, t.Owner
	return d.node.BuildImage(r.Context(), req, r.Body, func(p api.ImageProgress) { out.line(api.ImageLine{Progress: &p}) })
}

func (d *imageDoor) request(r *http.Request) (ImageRequest, error) {
	q := r.URL.Query()
	req := ImageRequest{Name: q.Get("name"), Kind: api.ImageKind(q.Get("kind")), Source: q.Get("source")}
	if err := model.CheckName("image", req.Name); err != nil {
		return req, err
	}
	if s := q.Get("disk"); s != "" {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < 0 {
			return req, errs.New(errs.Invalid, "disk %q is not a size in bytes", s)
		}
		req.Disk = n
	}
	switch req.Kind {
	case api.ImageStream, api.ImageOCI, api.ImageDebian:
		return req, nil
	}
	return req, errs.New(errs.Invalid, "kind %q is not one of stream, oci, debian", string(req.Kind))
}

// BuildImage builds and commits a generation on this node.
func (n *Node) BuildImage(ctx context.Context, req ImageRequest, input io.Reader, progress func(api.ImageProgress)) (api.Image, error) {
	if n.cfg.Images == nil {
		return api.Image{}, errs.New(errs.Unsupported, "node %s builds no images", n.cfg.Name)
	}
	select {
	case <-n.ready:
	case <-ctx.Done():
		return api.Image{}, errs.Wrap(errs.Unavailable, context.Cause(ctx), "wait for the control plane")
	}
	req.Keys = n.projection().DomainKeys
	res, err := n.cfg.Images.Build(ctx, req, input, progress)
	if err != nil {
		return api.Image{}, err
	}
	return n.cfg.Plane.CommitGeneration(ctx, api.CommitGenerationRequest{
		Node: n.id, Tenant: model.DefaultTenant, Image: req.Name, Root: res.Root, Source: res.Source,
		DiskBytes: res.DiskBytes, UsedBytes: res.UsedBytes, StoredBytes: res.StoredBytes,
		Principal: req.Principal, Owner: req.Owner,
	})
}

// lineWriter writes one line at a time and lets it go at once.
type lineWriter struct {
	mu    sync.Mutex
	enc   *json.Encoder
	flush *http.ResponseController
}

func (l *lineWriter) line(v api.ImageLine) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.enc.Encode(v) == nil {
		_ = l.flush.Flush()
	}
}
