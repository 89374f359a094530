package process

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/billethq/billet/internal/guest"
)

// inputBusy is how long terminals waits for one that is being fed: its program
// does not read, and it is left out.
const inputBusy = 50 * time.Millisecond

// terminals serves guest.TerminalsPath.
func (s *Service) terminals(w http.ResponseWriter, r *http.Request) {
	list := []guest.Terminal{}
	for _, p := range s.table.list() {
		if t, ok := p.terminal(r.Context()); ok {
			list = append(list, t)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(list) // a caller that hung up is no news
}

// terminal describes p when it has a terminal and a tag, and nobody follows it.
func (p *proc) terminal(ctx context.Context) (guest.Terminal, bool) {
	if p.tty == nil || p.tag == "" || p.exited.Load() {
		return guest.Terminal{}, false
	}
	end, since, held, ok := p.out.unfollowed()
	if !ok || since.IsZero() {
		return guest.Terminal{}, false
	}
	ctx, cancel := context.WithTimeout(ctx, inputBusy)
	defer cancel()
	if err := p.in.lock(ctx); err != nil {
		return guest.Terminal{}, false
	}
	fed := p.in.offset
	p.in.unlock()
	return guest.Terminal{Tag: p.tag, PID: p.pid, Output: end, Input: fed, Left: time.Since(since), Held: held}, true
}
