package mount

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"time"

	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/errs"
)

// Order is the one thing a helper is started for. Exactly one field is set.
// Mount and Recover work in the helper's own namespace, the others in the one
// that the helper was given as descriptor namespaceFD.
type Order struct {
	Mount   *MountRequest   `json:"mount,omitempty"`
	Unmount *UnmountRequest `json:"unmount,omitempty"`
	Sync    *DirRequest     `json:"sync,omitempty"` // write out everything
	Thaw    *DirRequest     `json:"thaw,omitempty"`
	Freeze  *FreezeRequest  `json:"freeze,omitempty"`
	Recover *RecoverRequest `json:"recover,omitempty"`
}

// DirRequest names a mounted file system.
type DirRequest struct {
	Dir string `json:"dir"`
}

// FreezeRequest asks for a freeze that ends with the helper's standard input,
// or at the deadline.
type FreezeRequest struct {
	Dir  string        `json:"dir"`
	Most time.Duration `json:"most"`
}

// RecoverRequest asks to detach what a dead server left.
type RecoverRequest struct {
	Tag string `json:"tag"`
}

// answer is a helper's one line; a freeze has two, the second when it thawed.
type answer struct {
	Mounted *Mounted `json:"mounted,omitempty"`
	Late    bool     `json:"late,omitempty"` // the freeze ended at its deadline
	Error   *failure `json:"error,omitempty"`
}

type failure struct {
	Kind    errs.Kind `json:"kind"`
	Message string    `json:"message"`
	Hint    string    `json:"hint,omitempty"`
}

func (f *failure) err() error {
	if f == nil {
		return nil
	}
	return &errs.Error{Kind: f.Kind, Message: f.Message, Hint: f.Hint}
}

// Helper is the helper's main: it does one order and answers on out. in is
// what follows the order on standard input. The exit code is always 0: the
// answer tells.
func Helper(order Order, in io.Reader, out io.Writer) int {
	reply := json.NewEncoder(out)
	send := func(a answer, err error) {
		if err != nil {
			a.Error = &failure{Kind: errs.KindOf(err), Message: err.Error(), Hint: errs.HintOf(err)}
		}
		_ = reply.Encode(a) // nobody reads it: the server is gone
	}
	if order.Mount == nil && order.Recover == nil {
		if err := enter(namespaceFD); err != nil {
			send(answer{}, err)
			return 0
		}
	}
	ctx := context.Background() // the server's death ends what waits
	switch {
	case order.Mount != nil:
		m, err := mountDisk(ctx, *order.Mount)
		send(answer{Mounted: &m}, err)
	case order.Unmount != nil:
		send(answer{}, unmountDisk(ctx, *order.Unmount))
	case order.Sync != nil:
		send(answer{}, within(order.Sync.Dir, syncDisk))
	case order.Thaw != nil:
		send(answer{}, within(order.Thaw.Dir, thaw))
	case order.Freeze != nil:
		holdFreeze(*order.Freeze, in, send)
	case order.Recover != nil:
		send(answer{}, recoverDisk(ctx, order.Recover.Tag))
	default:
		send(answer{}, errs.New(errs.Invalid, "no order"))
	}
	return 0
}

// within opens a directory for fn.
func within(path string, fn func(dir *os.File) error) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return fn(dir)
}

func holdFreeze(req FreezeRequest, in io.Reader, send func(answer, error)) {
	dir, err := os.Open(req.Dir)
	if err != nil {
		send(answer{}, err)
		return
	}
	defer dir.Close()
	took := clock.Start()
	if err := freeze(dir); err != nil {
		send(answer{}, err)
		return
	}
	late := time.NewTimer(req.Most - took.Elapsed())
	defer late.Stop()
	send(answer{}, nil)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, in)
	}()
	var a answer
	select {
	case <-ended:
	case <-late.C:
		a.Late = true
	}
	send(a, thaw(dir))
}

var errNoAnswer = errors.New("the mount helper ended without an answer")
