package gvisor

import (
	"sync"
	"testing"

	"github.com/billethq/billet/internal/driver"
	"github.com/billethq/billet/internal/model"
)

func TestRecords_FirstWordStands(t *testing.T) {
	r := records(t.TempDir())
	if _, ok, err := r.exit(); ok || err != nil {
		t.Fatalf("exit before the end: %v, %v", ok, err)
	}
	said := make([]driver.Exit, 8)
	var all sync.WaitGroup
	for i := range said {
		all.Go(func() {
			var err error
			if said[i], err = r.saveExit(driver.Exit{Cause: model.CauseExited, Code: i}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	first, ok, err := r.exit()
	if !ok || err != nil {
		t.Fatalf("exit: %v, %v", ok, err)
	}
	for i, e := range said {
		if e != first {
			t.Errorf("writer %d heard %+v, recorded is %+v", i, e, first)
		}
	}
}

func TestRecords_DeletedMeanwhile(t *testing.T) {
	r := records(t.TempDir() + "/gone")
	want := driver.Exit{Cause: model.CauseStopped}
	if got, err := r.saveExit(want); got != want || err != nil {
		t.Errorf("saveExit: got %+v, %v", got, err)
	}
	if err := r.markStopping(); err != nil {
		t.Errorf("markStopping: %v", err)
	}
}
