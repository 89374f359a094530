package process

import (
	"context"
	"errors"
	"os"
	"time"
)

var (
	errNoInput   = errors.New("stdin not enabled or closed")
	errInputSkip = errors.New("input is missing before this offset")
)

// input is the parent's end of a process's standard input or terminal.
type input struct {
	turn   chan struct{} // holds one token; a channel, so that waiting can be given up
	file   *os.File      // nil when there is none or it is closed
	offset int64         // bytes that the process's end has taken
}

func newInput(f *os.File) *input {
	in := &input{turn: make(chan struct{}, 1), file: f}
	in.turn <- struct{}{}
	return in
}

func (in *input) lock(ctx context.Context) error {
	select {
	case <-in.turn:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (in *input) unlock() { in.turn <- struct{}{} }

// write feeds data, waiting while the process does not read. When at is not
// negative it is the offset of data: what was taken before is not fed again,
// so that a caller that lost the answer can repeat the call.
func (in *input) write(ctx context.Context, at int64, data []byte) error {
	if err := in.lock(ctx); err != nil {
		return err
	}
	defer in.unlock()
	if at >= 0 {
		if at > in.offset {
			return errInputSkip
		}
		data = data[min(int64(len(data)), in.offset-at):]
	}
	if len(data) == 0 {
		return nil
	}
	if in.file == nil {
		return errNoInput
	}
	file, interrupted := in.file, make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = file.SetWriteDeadline(time.Unix(1, 0))
		close(interrupted)
	})
	n, err := file.Write(data)
	in.offset += int64(n)
	if !stop() {
		<-interrupted
		_ = file.SetWriteDeadline(time.Time{})
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return ctx.Err()
	}
	return err
}

// end closes the input. Ending it again changes nothing.
func (in *input) end(ctx context.Context) error {
	if err := in.lock(ctx); err != nil {
		return err
	}
	defer in.unlock()
	if in.file == nil {
		return nil
	}
	err := in.file.Close()
	in.file = nil
	return err
}

// close ends the input of a process that is gone, unless a write is under way:
// something in the background may still read it, and then ends the write, or
// the writer gives up.
func (in *input) close() {
	select {
	case <-in.turn:
		defer in.unlock()
		if in.file != nil {
			_ = in.file.Close()
			in.file = nil
		}
	default:
	}
}
