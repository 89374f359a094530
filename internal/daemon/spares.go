package daemon

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/volume/client"
	"github.com/billethq/billet/internal/volume/protocol"
)

const (
	// spareAfter is how long after a start the next spare is made: then the
	// guest that took the last one is up, and has the processors no more.
	spareAfter = time.Second
	// spareRetry is the pause after a spare that could not be made.
	spareRetry = time.Minute
)

// spares keeps one volume process ready, because executing one takes as long
// as mounting its disk. There is one for the node, not one for each guest: of
// many starts at once only the first is faster.
type spares struct {
	command []string
	log     *slog.Logger
	ready   chan *client.Spare
	taken   chan struct{}
	stop    context.CancelFunc
	done    chan struct{}
}

func newSpares(command []string, log *slog.Logger) *spares {
	ctx, stop := context.WithCancel(context.Background())
	s := &spares{
		command: command, log: log, stop: stop,
		ready: make(chan *client.Spare, 1), taken: make(chan struct{}, 1), done: make(chan struct{}),
	}
	go func() {
		defer close(s.done)
		s.keep(ctx)
	}()
	return s
}

// keep makes a spare, and another whenever that is taken.
func (s *spares) keep(ctx context.Context) {
	for pause := spareAfter; ; pause = spareAfter {
		spare, err := client.Prepare(s.command, os.Stderr)
		if err == nil {
			s.ready <- spare
			select {
			case <-ctx.Done():
				return
			case <-s.taken:
			}
		} else {
			s.log.Warn("no spare volume process", "err", err) // a start makes its own
			pause = spareRetry
		}
		if clock.Sleep(ctx, pause) != nil {
			return
		}
	}
}

// open serves a volume by the spare, or by a new process when there is none or
// the spare has not lived to see it.
func (s *spares) open(ctx context.Context, cfg protocol.Config, mounting func(rootfs, mountNS string)) (*client.Client, protocol.Ready, error) {
	select {
	case spare := <-s.ready:
		s.taken <- struct{}{}
		if spare.Alive() {
			return spare.Open(ctx, cfg, mounting)
		}
		spare.Close()
	default:
	}
	return client.Spawn(ctx, s.command, cfg, mounting)
}

// close ends the spare and waits for that.
func (s *spares) close() {
	s.stop()
	<-s.done
	select {
	case spare := <-s.ready:
		spare.Close()
	default:
	}
}
