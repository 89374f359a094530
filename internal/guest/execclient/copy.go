package execclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/guest/archive"
	"github.com/billethq/billet/internal/guest/guestpath"
)

// maxComplaint bounds what is kept of the guest's messages about a copy.
const maxComplaint = 8 << 10

// Copy copies trees between this machine and a guest, as cp -r does: a path
// that ends in "/." means what is in the directory, and a destination that is
// no directory becomes the one thing that is copied.
type Copy struct {
	From []string // at least one
	To   string
	User string          // in the guest; "" is its default user
	Warn func(err error) // told what is left out; may be nil
	// Count is told how many bytes of the archive have passed; may be nil.
	Count func(n int64)
	// Agent is the path of the guest agent's binary; "" means guestpath.Binary.
	Agent string
}

// CopyIn copies from this machine to the guest. Relative paths of the guest
// begin at the user's home. An error may leave a part of the copy.
func (c *Client) CopyIn(ctx context.Context, cp Copy) error {
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := archive.Pack(w, cp.From, cp.warn)
		var skipped archive.Skipped
		if errors.As(err, &skipped) {
			_ = w.Close() // the archive is whole
		} else {
			_ = w.CloseWithError(err)
		}
		packed <- err
	}()
	counted := &counter{r: r, count: cp.Count}
	defer counted.stop() // Run does not wait for the last Read
	complaint := &tail{}
	code, err := c.Run(ctx, Command{
		Args: []string{cp.agent(), "unpack", cp.To}, User: cp.User, Stdin: counted, Stderr: complaint,
	})
	_ = r.CloseWithError(errGuestEnded) // frees Pack
	packErr := <-packed
	if packErr != nil && errors.Is(err, packErr) {
		return packErr // Run only met it on its way
	}
	if err == nil {
		err = complaint.error(code)
	}
	if err == nil && !errors.Is(packErr, errGuestEnded) {
		return packErr
	}
	if err != nil {
		return fmt.Errorf("copy to the guest: %w", err)
	}
	return nil
}

var errGuestEnded = errors.New("the guest ended the copy")

// CopyOut copies from the guest to this machine; the guest is not trusted with
// anything but the content. An error may leave a part of the copy.
func (c *Client) CopyOut(ctx context.Context, cp Copy) error {
	r, w := io.Pipe()
	unpacked := make(chan error, 1)
	go func() {
		err := archive.Unpack(&counter{r: r, count: cp.Count}, cp.To)
		_ = r.CloseWithError(err) // ends Run when nothing more can be taken
		unpacked <- err
	}()
	complaint := &tail{}
	code, err := c.Run(ctx, Command{
		Args: append([]string{cp.agent(), "pack"}, cp.From...), User: cp.User,
		Stdout: w, Stderr: complaint,
	})
	_ = w.CloseWithError(err)
	if unpackErr := <-unpacked; unpackErr != nil && (err == nil || errors.Is(err, unpackErr)) {
		if told := complaint.error(code); err == nil && told != nil {
			return fmt.Errorf("copy from the guest: %w", told) // the cause of a missing archive
		}
		return unpackErr
	}
	if err == nil {
		err = complaint.error(code)
	}
	if err != nil {
		return fmt.Errorf("copy from the guest: %w", err)
	}
	return nil
}

func (c Copy) warn(err error) {
	if c.Warn != nil {
		c.Warn(err)
	}
}

func (c Copy) agent() string {
	if c.Agent != "" {
		return c.Agent
	}
	return guestpath.Binary
}

// tail keeps the last bytes written to it.
type tail struct{ b []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if n := len(t.b) - maxComplaint; n > 0 {
		t.b = append([]byte(nil), t.b[n:]...)
	}
	return len(p), nil
}

// error is what the guest's tool said, if its exit code is one of failure.
func (t *tail) error(code int) error {
	if code == 0 {
		return nil
	}
	if said := strings.TrimSpace(string(t.b)); said != "" {
		return errs.New(errs.Invalid, "%s", said)
	}
	return errs.New(errs.Internal, "the guest's tool ended with code %d", code)
}

// counter tells how much has been read.
type counter struct {
	r io.Reader

	mu    sync.Mutex
	n     int64
	count func(int64) // nil once stopped
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n += int64(n)
	if c.count != nil {
		c.count(c.n)
	}
	return n, err
}

// stop makes sure that count is not called any more.
func (c *counter) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count = nil
}
