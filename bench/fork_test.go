package bench

import (
	"os"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/errs"
)

// BenchmarkFork: from the committed snapshot of a running workspace to the first
// byte that its fork's server answers, against a resume of the same server.
// Target: ≤ 1.5. How long the parent stood still, and how long its memory took
// to be committed, are printed beside it.
func BenchmarkFork(b *testing.B) {
	w := newWorld(b)
	name := w.serve("parent")
	w.fork("parent", "sleeper")
	var ours, theirs []time.Duration
	var paused, stored []float64
	for b.Loop() {
		rest()
		child := w.fork("parent", "child")
		got, phases := w.askServer("child")
		ours = append(ours, time.Since(child.DurableAt)) // both by this host's clock
		if got != name {
			b.Fatalf("the fork's server answers %q, the parent's %q", got, name)
		}
		pause, store := w.tookForMemory()
		paused, stored = append(paused, pause.Seconds()*1000), append(stored, store.Seconds()*1000)
		b.Logf("%v: %s; the parent stood still for %v, stored in %v", ours[len(ours)-1].Round(time.Millisecond), phases, pause, store)
		w.remove("child")

		w.hibernate("sleeper")
		rest()
		began := clock.Start()
		if got, _ := w.askServer("sleeper"); got != name {
			b.Fatalf("the resumed server answers %q, it was %q", got, name)
		}
		theirs = append(theirs, began.Elapsed())
	}
	reportPairs(b, ours, theirs)
	b.ReportMetric(quantile(paused, 0.5), "pause-ms")
	b.ReportMetric(quantile(stored, 0.5), "stored-ms")
}

func (w *world) fork(from, name string) api.Workspace {
	w.b.Helper()
	ws, err := w.client.ForkWorkspace(w.b.Context(), "", from, api.ForkWorkspaceRequest{Name: name})
	if err != nil {
		w.b.Fatal(err)
	}
	return ws
}

var memoryLog = regexp.MustCompile(`guest was paused for its memory".* pause=(\S+)(?s:.*?)memory of a running guest stored".* took=(\S+)`)

// tookForMemory reads the newest from the node's log.
func (w *world) tookForMemory() (pause, stored time.Duration) {
	w.b.Helper()
	text, err := os.ReadFile(w.log)
	if err != nil {
		w.b.Fatal(err)
	}
	all := memoryLog.FindAllSubmatch(text, -1)
	if len(all) == 0 {
		w.b.Fatalf("the log says nothing of a pause: %s", text)
	}
	last := all[len(all)-1]
	if pause, err = time.ParseDuration(string(last[1])); err == nil {
		stored, err = time.ParseDuration(string(last[2]))
	}
	if err != nil {
		w.b.Fatal(err)
	}
	return pause, stored
}

// BenchmarkBurst: 40 workspaces asked for within one second by one client. Each
// is running or refused with its cause. Target: all within 10 seconds.
func BenchmarkBurst(b *testing.B) {
	w := newWorld(b)
	w.create("warm", api.CreateWorkspaceRequest{})
	w.remove("warm")
	var took, slowest []float64
	var made int
	for b.Loop() {
		rest()
		answers := w.burst(40, time.Second)
		worst := time.Duration(0)
		for _, a := range answers {
			took, worst = append(took, a.took.Seconds()*1000), max(worst, a.took)
			if a.made {
				made++
			}
		}
		slowest = append(slowest, worst.Seconds()*1000)
		w.clear()
	}
	b.ReportMetric(quantile(took, 0.5), "answer-p50-ms")
	b.ReportMetric(quantile(slowest, 1), "slowest-ms")
	b.ReportMetric(float64(made)/float64(b.N), "made")
	b.ReportMetric(0, "ns/op")
}

// answer is what became of a request for a workspace.
type answer struct {
	took time.Duration
	made bool
}

// burst asks for n workspaces, spread over a time.
func (w *world) burst(n int, over time.Duration) []answer {
	w.b.Helper()
	out := make([]answer, n)
	var all sync.WaitGroup
	every := time.NewTicker(over / time.Duration(n))
	defer every.Stop()
	for i := range out {
		<-every.C
		all.Go(func() {
			began := clock.Start()
			ws, err := w.client.CreateWorkspace(w.b.Context(), "", api.CreateWorkspaceRequest{})
			if err == nil {
				err = w.client.Progress(w.b.Context(), ws.Name, api.UntilRunning, func(api.Progress) error { return nil })
			}
			out[i] = answer{took: began.Elapsed(), made: err == nil}
			if err == nil {
				return
			}
			if !errs.Is(err, errs.Exhausted) || errs.HintOf(err) == "" {
				w.b.Errorf("neither made nor refused with its cause: %v", err)
			}
			w.b.Logf("refused after %v: %v", out[i].took.Round(time.Millisecond), err)
		})
	}
	all.Wait()
	return out
}
