package resume

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/billethq/billet/internal/guest"
	"github.com/billethq/billet/internal/guest/reaper"
)

// newService has a root of its own with the directories that matter.
func newService(t *testing.T) (*Service, string) {
	t.Helper()
	r := reaper.New()
	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan struct{})
	go func() { defer close(ran); r.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ran })
	root := t.TempDir()
	for _, dir := range []string{"run", "etc", filepath.Dir(guest.HookDir), guest.HookDir} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s, err := New(Config{Root: root, Reaper: r, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return s, root
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// request is one that leaves the host of the test its name.
func request(t *testing.T) guest.Resumed {
	t.Helper()
	name, err := os.Hostname()
	if err != nil || !isHostname(name) {
		t.Skipf("this host's name %q would have to be changed", name)
	}
	return guest.Resumed{Epoch: "abc-1", Hostname: name}
}

func TestResumed_HooksRunInOrderBeforeTheAnswer(t *testing.T) {
	s, root := newService(t)
	hooks := filepath.Join(root, guest.HookDir)
	log := filepath.Join(root, "log")
	write(t, filepath.Join(hooks, "20-second"), "#!/bin/sh\necho second $BILLET_RESTORE_EPOCH $BILLET_FORK >>"+log+"\necho said; exit 3\n", 0o755)
	write(t, filepath.Join(hooks, "10-first"), "#!/bin/sh\ncat "+filepath.Join(root, guest.RestoreEpochFile)+" >>"+log+"\n", 0o755)
	write(t, filepath.Join(hooks, "30-not-executable"), "#!/bin/sh\necho never >>"+log+"\n", 0o644)
	write(t, filepath.Join(hooks, "40-no-program"), "\x00", 0o755)
	out, err := s.Resumed(t.Context(), request(t))
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(log)
	if want := "abc-1\nsecond abc-1 0\n"; err != nil || string(got) != want {
		t.Errorf("hooks left %q, %v, want %q", got, err, want)
	}
	if len(out.Hooks) != 3 || out.Hooks[0].Code != 0 || out.Hooks[1].Code != 3 || out.Hooks[1].Output != "said\n" || out.Hooks[2].Code != -1 {
		t.Errorf("reported: %+v", out.Hooks)
	}
}

// TestResumed_HookThatHangs: neither it nor what it leaves behind holds up the
// resume for longer than its time.
func TestResumed_HookThatHangs(t *testing.T) {
	s, root := newService(t)
	write(t, filepath.Join(root, guest.HookDir, "a"), "#!/bin/sh\nsleep 2 & echo left; exit 0\n", 0o755)
	write(t, filepath.Join(root, guest.HookDir, "b"), "#!/bin/sh\nexec sleep 1000\n", 0o755)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	began := time.Now()
	out, err := s.Resumed(ctx, request(t))
	if err != nil || len(out.Hooks) != 2 || out.Hooks[0].Output != "left\n" || out.Hooks[1].Code != -1 {
		t.Errorf("got %+v, %v", out.Hooks, err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
}

func TestResumed_MachineIDIsTheForks(t *testing.T) {
	s, root := newService(t)
	file := filepath.Join(root, "etc/machine-id")
	write(t, file, strings.Repeat("a", 32)+"\n", 0o444)
	in := request(t)
	out, err := s.Resumed(t.Context(), in)
	if err != nil || out.MachineID != strings.Repeat("a", 32) {
		t.Errorf("the same workspace: got %+v, %v, want the id it had", out, err)
	}
	in.MachineID = strings.Repeat("b", 32)
	again, err := s.Resumed(t.Context(), in)
	if err != nil || again.MachineID != in.MachineID {
		t.Errorf("a fork: got %+v, %v, want %s", again, err, in.MachineID)
	}
	if out.Random == again.Random || len(out.Random) != 2*randomBytes {
		t.Errorf("random numbers %q and %q", out.Random, again.Random)
	}
}

func TestRegister_Answers(t *testing.T) {
	s, _ := newService(t)
	synced := 0
	s.sync = func() { synced++ }
	mux := http.NewServeMux()
	s.Register(mux)
	post := func(path, body string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest("POST", path, strings.NewReader(body)))
		return w
	}
	if w := post(guest.SyncPath, ""); w.Code != http.StatusNoContent || synced != 1 {
		t.Errorf("sync: %d, synced %d times", w.Code, synced)
	}
	good, err := json.Marshal(request(t))
	if err != nil {
		t.Fatal(err)
	}
	w := post(guest.ResumedPath, string(good))
	var out guest.ResumeReport
	if err := json.NewDecoder(w.Body).Decode(&out); err != nil || w.Code != http.StatusOK || time.Since(out.Now).Abs() > time.Minute {
		t.Errorf("resumed: %d, %+v, %v", w.Code, out, err)
	}
	for _, body := range []string{"", "{}", `{"epoch":"../x","hostname":"a"}`, `{"epoch":"a","hostname":"a b"}`,
		`{"epoch":"a","hostname":"a","machine_id":"zz"}`, string(bytes.Repeat([]byte("x"), maxRequest+1))} {
		if w := post(guest.ResumedPath, body); w.Code != http.StatusBadRequest {
			t.Errorf("%.40q: got %d, want 400", body, w.Code)
		}
	}
}

func TestMade_TakesItsAlphabetOnly(t *testing.T) {
	for _, c := range []struct {
		s    string
		want bool
	}{
		{"dev-1", true}, {"-", true}, {strings.Repeat("a", 63), true},
		{"", false}, {strings.Repeat("a", 64), false}, {"Dev", false}, {"a b", false}, {"a\n", false}, {"a/b", false}, {"a.b", false}, {"é", false},
	} {
		if got := isHostname(c.s); got != c.want {
			t.Errorf("isHostname(%q) = %v, want %v", c.s, got, c.want)
		}
	}
	if id := strings.Repeat("0f", 16); !made(id, 32, 32, hexDigits) || made(id[1:], 32, 32, hexDigits) || made("g"+id[1:], 32, 32, hexDigits) {
		t.Error("a machine id is 32 hexadecimal digits")
	}
}
