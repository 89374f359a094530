// Package client is how a node starts, finds, speaks to and ends volume
// processes.
//
// A volume process outlives its node, so nothing here is needed to keep one:
// Attach finds it again from the volume's directory alone.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
	"github.com/billethq/billet/internal/volume/protocol"
)

// dialTime bounds the wait for a connection to a process of this host.
const dialTime = 5 * time.Second

// Client speaks to one volume process. It is safe for concurrent use.
type Client struct {
	place   protocol.Place
	command []string
	process protocol.Process
	http    *http.Client
	reaped  <-chan struct{} // closed once our own child is reaped; nil: not ours
}

func newClient(place protocol.Place, command []string, process protocol.Process) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialTime)
		defer cancel()
		return place.Dial(ctx)
	}
	// A connection for each call: an idle one would be a goroutine on both
	// sides for every instance.
	return &Client{
		place: place, command: command, process: process,
		http: &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}},
	}
}

// Attach returns a client of the process that serves the volume in dir.
// command starts a volume process, as for Spawn.
// errs.NotFound: none was started there, or the one recorded has ended (a
// process that was given its number later is told from it); see Remains.
// errs.Unsupported: it speaks no version that this build knows.
func Attach(ctx context.Context, command []string, dir string) (*Client, protocol.Status, error) {
	c, err := Remains(command, dir)
	if err != nil {
		return nil, protocol.Status{}, err
	}
	if alive, err := c.process.Alive(); err != nil || !alive {
		if err == nil {
			err = errs.New(errs.NotFound, "volume process %d in %s has ended", c.process.PID, dir)
		}
		return nil, protocol.Status{}, err
	}
	if c.process.Version != protocol.Version {
		return nil, protocol.Status{}, errs.New(errs.Unsupported, "volume process %d speaks protocol version %d, this build %d", c.process.PID, c.process.Version, protocol.Version).
			WithHint("stop the instance with the release that started it")
	}
	st, err := c.Status(ctx)
	if err != nil {
		return nil, protocol.Status{}, err
	}
	if st.PID != c.process.PID {
		return nil, protocol.Status{}, errs.New(errs.Internal, "process %d answers for volume process %d in %s", st.PID, c.process.PID, dir)
	}
	return c, st, nil
}

// Remains returns a client of the process that was recorded in dir, alive or
// not: its Kill and Gone clear away what a dead one left. errs.NotFound when
// none was recorded.
func Remains(command []string, dir string) (*Client, error) {
	place := protocol.Place(dir)
	process, err := place.Recorded()
	if err != nil {
		return nil, err
	}
	return newClient(place, command, process), nil
}

// Process identifies the process.
func (c *Client) Process() protocol.Process { return c.process }

// Status asks what the process serves.
func (c *Client) Status(ctx context.Context) (protocol.Status, error) {
	return get[protocol.Status](ctx, c, protocol.PathStatus)
}

// WaitFault returns the first fault under the guest, which may be an old one.
// It waits until there is one, ctx ends or the process does.
func (c *Client) WaitFault(ctx context.Context) (protocol.Fault, error) {
	return get[protocol.Fault](ctx, c, protocol.PathFault)
}

// Seal sets aside what the guest wrote so far. It reports true when there is
// something to upload: from now on, or from a seal whose upload was never
// committed.
func (c *Client) Seal(ctx context.Context, freeze bool) (bool, error) {
	out, err := post[protocol.SealResponse](ctx, c, protocol.PathSeal, protocol.SealRequest{Freeze: freeze})
	return !out.Clean, err
}

// Upload stores what was sealed as a new root. It may be repeated; under the
// same epoch and number it gives the same root.
func (c *Client) Upload(ctx context.Context, req protocol.UploadRequest) (protocol.UploadResponse, error) {
	return post[protocol.UploadResponse](ctx, c, protocol.PathUpload, req)
}

// Committed says that the ledger has the root. It may be repeated.
func (c *Client) Committed(ctx context.Context, root model.Root) error {
	_, err := post[struct{}](ctx, c, protocol.PathCommitted, protocol.CommittedRequest{Root: root})
	return err
}

// SaveMemory stores the memory that a driver took.
func (c *Client) SaveMemory(ctx context.Context, req protocol.SaveMemoryRequest) (protocol.SaveMemoryResponse, error) {
	return post[protocol.SaveMemoryResponse](ctx, c, protocol.PathSaveMemory, req)
}

// LoadMemory writes a memory image's files into a directory.
func (c *Client) LoadMemory(ctx context.Context, req protocol.LoadMemoryRequest) (protocol.LoadMemoryResponse, error) {
	return post[protocol.LoadMemoryResponse](ctx, c, protocol.PathLoadMemory, req)
}

// Unmount takes the file system out, after the guest has ended: afterwards
// nothing can write to the disk. errs.Conflict names who still uses it.
func (c *Client) Unmount(ctx context.Context) error {
	_, err := post[struct{}](ctx, c, protocol.PathUnmount, struct{}{})
	return err
}

// Close unmounts, ends the process and waits for its end. The overlay stays as
// it is. errs.Conflict: something uses the disk, and the volume is served on.
func (c *Client) Close(ctx context.Context) error {
	if _, err := post[struct{}](ctx, c, protocol.PathClose, struct{}{}); err != nil {
		return err
	}
	return c.Wait(ctx)
}

func get[Out any](ctx context.Context, c *Client, path string) (Out, error) {
	return call[Out](ctx, c, http.MethodGet, path, nil)
}

func post[Out any](ctx context.Context, c *Client, path string, in any) (Out, error) {
	raw, err := json.Marshal(in)
	if err != nil {
		var none Out
		return none, err
	}
	return call[Out](ctx, c, http.MethodPost, path, bytes.NewReader(raw))
}

func call[Out any](ctx context.Context, c *Client, method, path string, body io.Reader) (out Out, err error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://volume"+path, body)
	if err != nil {
		return out, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return out, context.Cause(ctx)
		}
		return out, errs.Wrap(errs.Unavailable, err, "volume process %d", c.process.PID)
	}
	defer resp.Body.Close()
	answer := json.NewDecoder(io.LimitReader(resp.Body, protocol.MaxDocument))
	if resp.StatusCode != http.StatusOK {
		var p protocol.Problem
		if err := answer.Decode(&p); err != nil {
			return out, errs.Wrap(errs.Internal, err, "volume process %d answered %s", c.process.PID, resp.Status)
		}
		return out, fmt.Errorf("volume process %d: %w", c.process.PID, p.Err())
	}
	if err := answer.Decode(&out); err != nil {
		return out, errs.Wrap(errs.Unavailable, err, "volume process %d broke off its answer", c.process.PID)
	}
	return out, nil
}
