package sqlite_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/ledger/sqlite"
	"github.com/billethq/billet/internal/model"
)

const (
	// killRounds is how often the committing process is killed.
	killRounds = 10
	// killAfter is the most commits that a round waits for.
	killAfter = 40
	// childVariable tells the test binary that it is the process to kill.
	childVariable = "BILLET_TEST_LEDGER"
)

var (
	killMeta = ledger.Meta{Now: time.Unix(1_000_000, 0)}
	killNode = model.Node{ID: "node", Capacity: model.Capacity{VCPUs: 1}}
)

func killRoot(seq model.Seq) model.Root { return model.Root(fmt.Sprintf("b3:%064d", seq)) }

// TestKill9_KeepsAcknowledgedCommits kills a process that commits in a loop, at
// a random moment. Every commit it was told of is there afterwards, and at most
// one that it was not told of; all of them are one chain.
// invariant 12
func TestKill9_KeepsAcknowledgedCommits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var acknowledged model.Seq
	for round := range killRounds {
		acknowledged = max(acknowledged, commitUntilKilled(t, path, 1+random.IntN(killAfter)))
		l := open(t, path)
		w, err := l.Workspace(t.Context(), "", "ws")
		if err != nil {
			t.Fatal(err)
		}
		if w.HeadSeq != acknowledged && w.HeadSeq != acknowledged+1 {
			t.Fatalf("round %d: head is number %d, acknowledged were %d", round, w.HeadSeq, acknowledged)
		}
		snapshots, err := l.Snapshots(t.Context(), "", "ws")
		if err != nil || len(snapshots) != int(w.HeadSeq) {
			t.Fatalf("round %d: %d snapshots under head %d: %v", round, len(snapshots), w.HeadSeq, err)
		}
		for i, s := range snapshots {
			if seq := w.HeadSeq - model.Seq(i); s.Seq != seq || s.Root != killRoot(seq) {
				t.Fatalf("round %d: snapshot %+v at number %d", round, s, seq)
			}
		}
		acknowledged = w.HeadSeq
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// commitUntilKilled returns the last commit that the killed process was told of.
func commitUntilKilled(t *testing.T, path string, commits int) (last model.Seq) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for n := 0; lines.Scan(); n++ {
		seq, err := strconv.ParseUint(lines.Text(), 10, 64)
		if err != nil {
			t.Errorf("the child says %q", lines.Text())
			break
		}
		last = model.Seq(seq)
		if n == commits {
			_ = cmd.Process.Kill() // what it still says is read, too: it was told of that
		}
	}
	_ = cmd.Process.Kill()
	if err := cmd.Wait(); err == nil {
		t.Error("the child ended by itself")
	}
	return last
}

func TestMain(m *testing.M) {
	if path := os.Getenv(childVariable); path != "" {
		fmt.Fprintln(os.Stderr, "child:", commitForever(context.Background(), path))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// commitForever prints the number of each commit it is told of.
func commitForever(ctx context.Context, path string) error {
	l, err := sqlite.Open(path, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	m := killMeta
	in, w, err := childInstance(ctx, l)
	if err != nil {
		return err
	}
	for {
		it, err := l.BeginFlush(ctx, m, model.FlushIntent{
			ID: model.IntentID(model.NewID()), Instance: in.ID, Epoch: in.Epoch, Base: w.Head, Expires: m.Now.Add(time.Hour),
		})
		if err != nil {
			return err
		}
		s, err := l.CommitFlush(ctx, m, it.ID, in.ID, model.Snapshot{
			ID: model.SnapshotID(model.NewID()), Workspace: w.ID, Root: killRoot(it.Seq), Parent: w.Head, Epoch: in.Epoch, Seq: it.Seq,
		})
		if err != nil {
			return err
		}
		w.Head = s.Root
		fmt.Println(s.Seq)
	}
}

// childInstance goes on with the instance of the child before, or starts.
func childInstance(ctx context.Context, l ledger.Ledger) (in model.Instance, w model.Workspace, err error) {
	w, err = l.Workspace(ctx, "", "ws")
	if errs.Is(err, errs.NotFound) {
		w, _, err = l.CreateWorkspace(ctx, killMeta, model.Workspace{ID: "ws", Name: "ws", Base: killRoot(0), Desired: model.DesiredRunning}, ledger.Idempotency{})
	}
	if err != nil {
		return in, w, err
	}
	if err := l.SeeNode(ctx, killMeta, killNode); err != nil {
		return in, w, err
	}
	in, err = l.Place(ctx, killMeta, model.Instance{ID: "instance", Node: killNode.ID, SubjectKind: model.SubjectWorkspace, Subject: "ws"}, ledger.Ceiling{})
	if errs.Is(err, errs.Conflict) {
		in, err = l.Instance(ctx, "instance")
	}
	return in, w, err
}

// hold takes the write lock of the ledger as another process would.
func hold(t *testing.T, path string) (release func()) {
	t.Helper()
	other, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close() })
	other.SetMaxOpenConns(1)
	if _, err := other.Exec("BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	return func() {
		if _, err := other.Exec("ROLLBACK"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLock_WriterWaitsReaderDoesNot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	l := open(t, path)
	release := hold(t, path)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- l.ExpireIdempotency(ctx, time.Unix(1, 0)) }()
	if _, err := l.Workspaces(t.Context(), ""); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-ended; !errs.Is(err, errs.Unavailable) {
		t.Errorf("waiting for the lock ended with %v, want kind %q", err, errs.Unavailable)
	}
	release()
	if err := l.ExpireIdempotency(t.Context(), time.Unix(1, 0)); err != nil {
		t.Errorf("after the lock: %v", err)
	}
}

// TestTokenByHash_LedgerCannotBeWritten lets people in all the same.
func TestTokenByHash_LedgerCannotBeWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	l := open(t, path)
	m := ledger.Meta{Now: time.Unix(1, 0)}
	if _, err := l.CreateToken(t.Context(), m, model.Principal{ID: "p", Name: "p"}, model.Token{ID: "k", Name: "k", Hash: [32]byte{1}}); err != nil {
		t.Fatal(err)
	}
	defer hold(t, path)()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond) // much for the read, all that the write gets
	defer cancel()
	rec, err := l.TokenByHash(ctx, m, [32]byte{1})
	if err != nil || rec.Token.ID != "k" || !rec.Token.LastUsed.IsZero() {
		t.Errorf("got %+v, %v", rec, err)
	}
}
