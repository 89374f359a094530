package gvisor

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"
)

func TestProcess_IsNotMistaken(t *testing.T) {
	me, err := identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		p    process
		want bool
	}{
		"itself":           {me, true},
		"another's id now": {process{PID: me.PID, Start: me.Start + 1, BootID: me.BootID}, false},
		"before a reboot":  {process{PID: me.PID, Start: me.Start, BootID: "other"}, false},
		"no such process":  {process{PID: 1 << 30, Start: 1, BootID: me.BootID}, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tc.p.alive()
			if err != nil || got != tc.want {
				t.Errorf("alive: got %v, %v, want %v", got, err, tc.want)
			}
			if tc.want {
				return
			}
			if err := tc.p.wait(t.Context()); err != nil {
				t.Errorf("wait: %v", err)
			}
		})
	}
}

func TestProcess_WaitsForAnyProcess(t *testing.T) {
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("wait with an ended context: got %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- p.wait(t.Context()) }()
	in.Close()
	if err := <-ended; err != nil {
		t.Errorf("wait: %v", err)
	}
	// Nobody has reaped it: a zombie is no compute.
	if alive, err := p.alive(); alive || err != nil {
		t.Errorf("alive as a zombie: got %v, %v", alive, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("17 (a) b) S 1 17 17 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 4242 2 3"))
	f.Add([]byte("1 (init) Z"))
	f.Add([]byte(")"))
	f.Add([]byte(""))
	f.Fuzz(func(t *testing.T, b []byte) {
		start, state, err := parseStat(b)
		if err != nil && (start != 0 || state != 0) {
			t.Errorf("parseStat(%q): got %d, %q beside an error", b, start, state)
		}
	})
}

func TestParseStat_NameMayHoldAnything(t *testing.T) {
	start, state, err := parseStat([]byte("17 (a) b (c) S 1 17 17 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 4242 2 3\n"))
	if start != 4242 || state != 'S' || err != nil {
		t.Errorf("got %d, %q, %v", start, state, err)
	}
}
