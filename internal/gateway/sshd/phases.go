package sshd

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/billethq/billet/internal/api"
)

// patience is how long a client waits without being told for what.
const patience = 300 * time.Millisecond

// phases tells a client how far its workspace is, when that takes a while.
type phases struct {
	w     io.Writer
	eol   string
	timer *time.Timer

	mu   sync.Mutex
	late bool
	last *api.ConnectPhase // reached and not told
	over bool
}

func newPhases(w io.Writer, eol string) *phases {
	p := &phases{w: w, eol: eol}
	p.timer = time.AfterFunc(patience, p.tellLate)
	return p
}

// reach notes a phase.
func (p *phases) reach(at api.ConnectPhase) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = &at
	p.tell()
	return nil
}

func (p *phases) tellLate() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.late = true
	p.tell()
}

// tell writes the newest phase. The caller holds the lock.
func (p *phases) tell() {
	if !p.late || p.over || p.last == nil {
		return
	}
	_, _ = fmt.Fprintf(p.w, "billet: %s %.1fs%s", p.last.Name, float64(p.last.ElapsedMilli)/1000, p.eol)
	p.last = nil
}

// end tells nothing from here on.
func (p *phases) end() {
	p.timer.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
}
