//go:build failpoint

package faults

import (
	"crypto/sha256"
	"fmt"
	"io"
	"strings"
	"testing"
)

// TestExec_OutlivesARole kills a role in the middle of what a command says.
// Every byte arrives, in both directions, and so does the exit code.
//
// The server is only needed to open a road: it stays dead until the command
// has ended, so that no second road can have been opened. The others are
// started again, and the client finds the guest within its window.
// invariant 6
func TestExec_OutlivesARole(t *testing.T) {
	for _, c := range []struct {
		dies string
		back bool // it is started again while the command runs
	}{{roleServer, false}, {roleGateway, true}, {roleNode, true}} {
		t.Run(c.dies, func(t *testing.T) {
			t.Parallel()
			w := deploy(t, options{})
			w.create("one")
			big := w.sh("one", "dd if=/dev/urandom of=/root/big bs=1M count=8 2>/dev/null && sha256sum < /root/big")
			dying := map[string]*role{roleServer: w.server, roleGateway: w.gateway, roleNode: w.node}[c.dies]

			in, say := io.Pipe()
			out := &gate{at: 2 << 20, reached: make(chan struct{}), open: make(chan struct{})}
			ended := make(chan string, 1)
			go func() {
				s, err := w.run(t.Context(), "one", `read a; cat /root/big; read b; echo "$a $b"; exit 7`, in, out)
				ended <- fmt.Sprintf("code %d, error %v, stderr %q", s.code, err, s.err.String())
			}()
			_, _ = io.WriteString(say, "one\n") // the road for input is open before the role dies
			<-out.reached
			dying.kill()
			if c.back {
				dying.start()
			}
			close(out.open)
			_, _ = io.WriteString(say, "two\n")
			_ = say.Close()
			if got, want := <-ended, `code 7, error <nil>, stderr ""`; got != want {
				t.Errorf("the command ended with %s, want %s", got, want)
			}
			const size = 8 << 20
			if len(out.got) < size {
				t.Fatalf("got %d bytes of output, want more than %d", len(out.got), size)
			}
			if got := fmt.Sprintf("%x  -\n", sha256.Sum256(out.got[:size])); got != big {
				t.Errorf("output: got hash %s, want %s", got, big)
			}
			if got := string(out.got[size:]); got != "one two\n" {
				t.Errorf("input came back as %q, want %q", got, "one two\n")
			}
			if !c.back {
				dying.start()
				w.awaitNode(w.node)
			}
			w.close()
		})
	}
}

// gate takes bytes, and stops taking them at one point until it is opened.
type gate struct {
	at      int
	reached chan struct{}
	open    chan struct{}
	got     []byte
}

func (g *gate) Write(p []byte) (int, error) {
	if before := len(g.got); before < g.at && before+len(p) >= g.at {
		close(g.reached)
		<-g.open
	}
	g.got = append(g.got, p...)
	return len(p), nil
}

// TestExec_InWhatDoesNotRun: a refusal that says what to do.
func TestExec_InAStoppedWorkspace(t *testing.T) {
	t.Parallel()
	w := deploy(t, options{})
	w.create("one")
	w.stop("one")
	_, err := w.run(t.Context(), "one", "true", nil, nil)
	if err == nil || !strings.Contains(err.Error(), "is stopped") {
		t.Errorf("exec in a stopped workspace: %v, want to hear that it is stopped", err)
	}
	w.close()
}
