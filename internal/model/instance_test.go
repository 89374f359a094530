package model_test

import (
	"testing"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// invariant 2: an instance leaves the charged states by a proof only, and
// silence is none.
func TestLive_UntilProvedGone(t *testing.T) {
	charged := map[model.InstanceState]bool{
		model.StateReserved: true, model.StateStarting: true, model.StateRunning: true, model.StateStopping: true, model.StateUnproven: true,
		model.StateFenced: false, model.StateEnded: false,
	}
	for _, s := range model.InstanceStates() {
		want, known := charged[s]
		if !known {
			t.Errorf("state %s: nobody has said whether it is charged", s)
		}
		if s.Live() != want {
			t.Errorf("state %s: live is %v, want %v", s, s.Live(), want)
		}
	}
}

// invariant 3: what has been overtaken never comes back.
func TestTransitions_NeverReviveTheDead(t *testing.T) {
	for _, from := range model.InstanceStates() {
		for _, to := range model.InstanceStates() {
			if err := model.CheckTransition(from, to); err == nil && !from.Live() && to.Live() {
				t.Errorf("%s to %s is legal", from, to)
			}
		}
	}
}

func TestTransitions(t *testing.T) {
	for _, s := range model.InstanceStates() {
		if err := model.CheckTransition(s, s); err != nil {
			t.Errorf("%s cannot stay: %v", s, err)
		}
		// Whatever it does, its node may be lost, overtaken or proved empty.
		for _, to := range []model.InstanceState{model.StateUnproven, model.StateFenced, model.StateEnded} {
			if err := model.CheckTransition(s, to); s.Live() && err != nil {
				t.Errorf("live %s cannot become %s: %v", s, to, err)
			}
		}
		if err := model.CheckTransition(model.StateEnded, s); s != model.StateEnded && !errs.Is(err, errs.Conflict) {
			t.Errorf("ended to %s: %v, want an error of kind conflict", s, err)
		}
		if err := model.CheckTransition("asleep", s); err == nil {
			t.Errorf("an unknown state may become %s", s)
		}
	}
	// A guest that is being ended is not started again under the same lease.
	for _, to := range []model.InstanceState{model.StateReserved, model.StateStarting, model.StateRunning} {
		if err := model.CheckTransition(model.StateStopping, to); err == nil {
			t.Errorf("stopping may become %s", to)
		}
	}
}
