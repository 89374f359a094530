package execclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/guest"
	pb "github.com/billethq/billet/internal/guest/processpb"
)

const (
	// pieceSize bounds the input of one call, and with the round trip its
	// throughput: 1 MiB is 50 MB/s at 20 ms. A call that fails is repeated with
	// a quarter, down to leastPiece, and one that succeeds doubles the next, so
	// that a road which breaks again and again still carries some.
	pieceSize  = 1 << 20
	leastPiece = 4 << 10
	// ackEvery is how much output is received before it is acknowledged: a
	// quarter of what the agent sends ahead, so that it need not stop.
	ackEvery = guest.ReplayBytes / 4
	// lastAck bounds the wait for the answer to the last acknowledgement, which
	// only saves the guest memory.
	lastAck = 250 * time.Millisecond
	// lastLeave bounds the farewell to a process that runs on. When it does not
	// arrive the agent finds out by itself.
	lastLeave = 2 * time.Second
	// eot ends a terminal's input.
	eot = 0x04
)

// feed passes Stdin on, a piece at a time, each until it was taken.
func (r *run) feed(ctx context.Context) {
	src := newPieces(ctx, r.cmd.Stdin)
	select {
	case <-r.began:
	case <-ctx.Done():
		return
	}
	at := r.fed
	for {
		piece, err := src.next(ctx)
		if err != nil && r.cmd.PTY != nil && errors.Is(err, io.EOF) {
			piece = append(piece, eot)
		}
		if !r.send(ctx, at, piece) {
			return
		}
		at += int64(len(piece))
		if err != nil {
			if !errors.Is(err, io.EOF) && ctx.Err() == nil {
				r.inputErr = err
			}
			break
		}
	}
	if r.cmd.PTY == nil {
		r.retry(ctx, func(ctx context.Context) error {
			_, err := r.unary.CloseStdin(ctx, connect.NewRequest(&pb.CloseStdinRequest{Process: r.selector()}))
			return err
		})
	}
}

// send passes one piece on, in as many calls as it takes, and reports success.
func (r *run) send(ctx context.Context, at int64, piece []byte) bool {
	for len(piece) > 0 {
		var n int
		sent := r.retry(ctx, func(ctx context.Context) error {
			n = min(len(piece), r.piece)
			err := r.input(ctx, at, piece[:n])
			if err != nil {
				r.piece = max(r.piece/4, leastPiece)
			}
			return err
		})
		if !sent {
			return false
		}
		r.piece = min(2*r.piece, pieceSize)
		piece, at = piece[n:], at+int64(n)
	}
	return true
}

func (r *run) input(ctx context.Context, at int64, data []byte) error {
	in := &pb.ProcessInput{Input: &pb.ProcessInput_Stdin{Stdin: data}}
	if r.cmd.PTY != nil {
		in.Input = &pb.ProcessInput_Pty{Pty: data}
	}
	req := connect.NewRequest(&pb.SendInputRequest{Process: r.selector(), Input: in})
	req.Header().Set(guest.HeaderInputOffset, strconv.FormatInt(at, 10))
	if r.cmd.Flow {
		req.Header().Set(guest.HeaderFlow, "1")
	}
	_, err := r.unary.SendInput(ctx, req)
	return err
}

// forward passes signals and sizes on.
func (r *run) forward(ctx context.Context) {
	select {
	case <-r.began:
	case <-ctx.Done():
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case sig, ok := <-r.cmd.Signals:
			if !ok {
				r.cmd.Signals = nil
				continue
			}
			req := &pb.SendSignalRequest{Process: r.selector(), Signal: pb.Signal(sig)}
			r.retry(ctx, func(ctx context.Context) error {
				_, err := r.unary.SendSignal(ctx, connect.NewRequest(req))
				return err
			})
		case size, ok := <-r.cmd.Resizes:
			if !ok {
				r.cmd.Resizes = nil
				continue
			}
			req := &pb.UpdateRequest{Process: r.selector(), Pty: &pb.PTY{Size: &pb.PTY_Size{Cols: uint32(size.Cols), Rows: uint32(size.Rows)}}}
			r.retry(ctx, func(ctx context.Context) error {
				_, err := r.unary.Update(ctx, connect.NewRequest(req))
				return err
			})
		}
	}
}

// pipeGrace is how long a process may go on after it was told that nobody takes
// its output: what ignores SIGPIPE would otherwise run for ever, unseen.
const pipeGrace = 2 * time.Second

// breakPipe gives the process what a broken pipe would: SIGPIPE, and for one
// that does not end by it, SIGKILL.
func (r *run) breakPipe(ctx context.Context) {
	select {
	case <-r.hungUp:
	case <-ctx.Done():
		return
	}
	for _, sig := range []syscall.Signal{syscall.SIGPIPE, syscall.SIGKILL} {
		req := &pb.SendSignalRequest{Process: r.selector(), Signal: pb.Signal(sig)}
		told := r.retry(ctx, func(ctx context.Context) error {
			_, err := r.unary.SendSignal(ctx, connect.NewRequest(req))
			return err
		})
		// An agent that is older than this refuses the first: nobody to wait for.
		if told && clock.Sleep(ctx, pipeGrace) != nil {
			return
		}
	}
}

// retry calls f until it succeeds, ctx ends with the run, or the agent refuses:
// the process then has ended or does not want it. It reports success.
func (r *run) retry(ctx context.Context, f func(context.Context) error) bool {
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		err := f(ctx)
		if err == nil {
			return true
		}
		if ctx.Err() != nil || final(err) {
			r.client.cfg.Log.Debug("exec_call_refused", "error", err)
			return false
		}
		r.client.cfg.Log.Debug("exec_call_lost", "error", err)
		if clock.Sleep(ctx, clock.Jitter(wait)) != nil {
			return false
		}
	}
}

// pieces reads ahead of the calls, so that what comes in drops travels in
// larger pieces. It holds at most pieceSize bytes.
type pieces struct {
	mu      sync.Mutex
	buf     []byte
	err     error
	changed chan struct{} // signalled, capacity 1: something was read
	taken   chan struct{} // signalled, capacity 1: there is room
}

// newPieces starts to read src. The reading goroutine ends with src, or when
// ctx has ended and the Read under way, which cannot be interrupted, returns.
func newPieces(ctx context.Context, src io.Reader) *pieces {
	p := &pieces{changed: make(chan struct{}, 1), taken: make(chan struct{}, 1)}
	go p.fill(ctx, src)
	return p
}

func (p *pieces) fill(ctx context.Context, src io.Reader) {
	buf := make([]byte, 64<<10)
	for {
		n, err := src.Read(buf)
		p.mu.Lock()
		for len(p.buf) > 0 && len(p.buf)+n > pieceSize {
			p.mu.Unlock()
			select {
			case <-p.taken:
			case <-ctx.Done():
				return
			}
			p.mu.Lock()
		}
		p.buf = append(p.buf, buf[:n]...)
		p.err = err
		p.mu.Unlock()
		select {
		case p.changed <- struct{}{}:
		default:
		}
		if err != nil || ctx.Err() != nil {
			return
		}
	}
}

// next returns what has been read, waiting for something, and the error of
// src after its last bytes.
func (p *pieces) next(ctx context.Context) ([]byte, error) {
	for {
		p.mu.Lock()
		buf, err := p.buf, p.err
		p.buf = nil
		p.mu.Unlock()
		if len(buf) > 0 || err != nil {
			select {
			case p.taken <- struct{}{}:
			default:
			}
			return buf, err
		}
		select {
		case <-p.changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// acker tells the agent what has been received.
type acker struct {
	calls       *http.Transport
	tag, reader string

	mu     sync.Mutex
	offset int64 // received
	told   int64 // acknowledged, or being so
	due    chan struct{}
}

func newAcker(t *http.Transport, tag, reader string) *acker {
	return &acker{calls: t, tag: tag, reader: reader, due: make(chan struct{}, 1)}
}

// received notes that output up to offset is in the caller's hands.
func (a *acker) received(offset int64) {
	a.mu.Lock()
	a.offset = offset
	due := a.offset-a.told >= ackEvery
	a.mu.Unlock()
	if due {
		select {
		case a.due <- struct{}{}:
		default:
		}
	}
}

// run acknowledges until ctx ends. A call that fails is made up for by the
// next, or by the offset at which the stream resumes.
func (a *acker) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.due:
		}
		a.mu.Lock()
		before, offset := a.told, a.offset
		a.told = offset
		a.mu.Unlock()
		if offset-before < ackEvery {
			continue
		}
		if err := a.tell(ctx, a.calls, guest.Ack{Offset: offset}); err != nil {
			a.mu.Lock()
			a.told = before
			a.mu.Unlock()
			if clock.Sleep(ctx, clock.Jitter(firstRetry)) != nil {
				return
			}
			select {
			case a.due <- struct{}{}:
			default:
			}
		}
	}
}

// leave tells, over t, that nobody will come back for more.
func (a *acker) leave(ctx context.Context, t *http.Transport, offset int64) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastLeave)
	defer cancel()
	_ = a.tell(ctx, t, guest.Ack{Offset: offset, Leave: true})
}

// last tells, over t, that the end has been received.
func (a *acker) last(ctx context.Context, t *http.Transport, offset int64) {
	ctx, cancel := context.WithTimeout(ctx, lastAck)
	defer cancel()
	_ = a.tell(ctx, t, guest.Ack{Offset: offset, End: true})
}

func (a *acker) tell(ctx context.Context, t *http.Transport, ack guest.Ack) error {
	ack.Tag, ack.Reader = a.tag, a.reader
	body, err := json.Marshal(ack)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, baseURL+guest.AckPath, bytes.NewReader(body))
	if err != nil {
		return err
	}
	res, err := t.RoundTrip(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	_, err = io.CopyN(io.Discard, res.Body, 4<<10)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if res.StatusCode != http.StatusNoContent {
		return errors.New("acknowledge output: " + res.Status)
	}
	return nil
}
