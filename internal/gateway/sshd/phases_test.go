package sshd

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/billethq/billet/internal/api"
)

// Who waits for long is told each phase from then on, the one that it is in
// first; who is let in at once is told nothing.
func TestPhases_TellsWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said strings.Builder
		p := newPhases(&said, "\r\n")
		reach := func(name api.ConnectPhaseName, elapsed time.Duration) {
			if err := p.reach(api.ConnectPhase{Name: name, ElapsedMilli: elapsed.Milliseconds()}); err != nil {
				t.Error(err)
			}
		}
		reach(api.PhaseAuthorised, 0)
		reach(api.PhasePlaced, 100*time.Millisecond)
		time.Sleep(patience)
		synctest.Wait()
		reach(api.PhaseAttached, 1200*time.Millisecond)
		p.end()
		reach(api.PhaseBooting, 2*time.Second) // too late to be of use
		if want := "billet: placed 0.1s\r\nbillet: attached 1.2s\r\n"; said.String() != want {
			t.Errorf("got %q, want %q", said.String(), want)
		}

		said.Reset()
		p = newPhases(&said, "\n")
		reach(api.PhaseAttached, 200*time.Millisecond)
		p.end()
		time.Sleep(patience)
		synctest.Wait()
		if said.Len() > 0 {
			t.Errorf("who is let in at once was told %q", said.String())
		}
	})
}
