package node

import (
	"path/filepath"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/model"
)

// The phases of an instance's way up, in order.
const (
	phaseAccepted = "accepted"
	phaseVolume   = "volume"
	phaseMemory   = "memory"
	phaseGuest    = "guest"
	phaseAttached = "attached"
	phaseLost     = "volume_lost"
	phaseEnded    = "guest_ended"
	phaseSaved    = "saved"
)

// maxPhases bounds what is kept and reported of one instance: a way up has
// five phases, and a volume may be lost a few times.
const maxPhases = 40

// observed is what the node reports of this instance.
func (s *supervisor) observed() api.ObservedInstance {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shown != nil {
		return *s.shown
	}
	return s.view()
}

// view is the present state as a report; the caller holds mu.
func (s *supervisor) view() api.ObservedInstance {
	var durable time.Duration
	if s.saved != nil {
		durable = max(s.saved.Elapsed(), 1)
	}
	return api.ObservedInstance{
		ID: s.rec.Desired.ID, Epoch: s.rec.Desired.Epoch, State: s.state, Cause: s.rec.Cause, Detail: s.rec.Detail,
		Phases: append([]model.Phase(nil), s.rec.Phases...), Base: s.status.Root, UnsavedBytes: s.status.UnsavedBytes,
		DurableAge: durable, Flushed: s.served, FlushError: s.trouble,
	}
}

// update changes what is published, keeps the record for good, and has it
// reported.
func (s *supervisor) update(fn func()) error { return s.keep(saveJSON, fn) }

// note does the same for what only has to survive the node.
func (s *supervisor) note(fn func()) error { return s.keep(noteJSON, fn) }

// keep has what fn changes on the disk before it is told, where the disk allows
// it: control must not act on what a node that dies now knows nothing of. A
// flush keeps from a goroutine of its own, and no older record may replace a
// newer one.
func (s *supervisor) keep(save func(string, any) error, fn func()) error {
	s.keeping.Lock()
	defer s.keeping.Unlock()
	s.mu.Lock()
	before := s.view()
	fn()
	s.shown = &before
	r := s.rec
	s.mu.Unlock()
	err := save(filepath.Join(s.dir, recordFile), r)
	s.publish(func() { s.shown = nil })
	return err
}

// publish changes what is reported and not kept.
func (s *supervisor) publish(fn func()) {
	s.mu.Lock()
	fn()
	s.mu.Unlock()
	s.node.poke()
}

// reach notes a phase and the state that comes with it.
func (s *supervisor) reach(name string, st model.InstanceState) { s.reachWith(name, "", st) }

// reachWith is reach with what is worth knowing of the phase.
func (s *supervisor) reachWith(name, detail string, st model.InstanceState) {
	now := s.node.cfg.Clock.Now()
	err := s.note(func() {
		s.state = st
		s.rec.Phases = append(s.rec.Phases, model.Phase{Name: name, At: now, Detail: detail})
		if extra := len(s.rec.Phases) - maxPhases; extra > 0 {
			s.rec.Phases = s.rec.Phases[extra:]
		}
	})
	if err != nil {
		s.log.Warn("phase not kept", "phase", name, "err", err)
	}
}

func (s *supervisor) observedPhase(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.rec.Phases {
		if p.Name == name {
			return true
		}
	}
	return false
}

// lastPhase is the newest phase, "" before the first.
func (s *supervisor) lastPhase() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.rec.Phases); n > 0 {
		return s.rec.Phases[n-1].Name
	}
	return ""
}
