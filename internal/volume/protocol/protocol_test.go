package protocol

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

func valid() Config {
	return Config{
		Version: Version, Instance: model.InstanceID(model.NewID()), Subject: "s", Tenant: "t", Root: model.Root("b3:" + strings.Repeat("a", 64)),
		Size: 1 << 30, Dir: "/a", Cache: CacheConfig{Dir: "/b"}, Store: StoreConfig{Dir: "/c"},
	}
}

func TestConfig_Check(t *testing.T) {
	if c := valid(); c.Check() != nil {
		t.Fatal(c.Check())
	}
	for name, change := range map[string]func(*Config){
		"instance": func(c *Config) { c.Instance = "../x" },
		"subject":  func(c *Config) { c.Subject = "" },
		"dir":      func(c *Config) { c.Dir = "x" },
		"size":     func(c *Config) { c.Size = 1<<30 + 1 },
		"too big":  func(c *Config) { c.Size = 1 << 50 },
		"no root":  func(c *Config) { c.Root = "" },
		"root":     func(c *Config) { c.Root = "b3:1" },
	} {
		c := valid()
		change(&c)
		if err := c.Check(); !errs.Is(err, errs.Invalid) {
			t.Errorf("%s: %v, want invalid", name, err)
		}
	}
}

func TestProblem_KeepsKindAndHint(t *testing.T) {
	err := errs.New(errs.Conflict, "held").WithHint("let go")
	raw, _ := json.Marshal(NewProblem(err))
	var p *Problem
	if e := json.Unmarshal(raw, &p); e != nil {
		t.Fatal(e)
	}
	if got := p.Err(); !errs.Is(got, errs.Conflict) || errs.HintOf(got) != "let go" || got.Error() != "held" {
		t.Errorf("got %v, want %v", got, err)
	}
	if NewProblem(nil).Err() != nil {
		t.Error("no error became one")
	}
}

// TestFields_AreFrozen fails when a field of version 1 changes its name: a
// process of an older release is still spoken to. Adding one is fine: add it
// here.
func TestFields_AreFrozen(t *testing.T) {
	for _, test := range []struct {
		v    any
		want string
	}{
		{Process{}, "version instance pid start boot_id loop rootfs mount_ns"},
		{Status{}, "- root size unsaved_bytes sealed pending mounted faults counters"},
		{Fault{}, "kind detail block key root"},
		{SealRequest{}, "freeze"},
		{SealResponse{}, "clean"},
		{UploadRequest{}, "intent epoch seq started"},
		{UploadResponse{}, "root consistency stored_bytes written_bytes blocks"},
		{CommittedRequest{}, "root"},
		{Problem{}, "kind message hint damaged"},
	} {
		typ := reflect.TypeOf(test.v)
		var names []string
		for i := range typ.NumField() {
			name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			if name == "" {
				name = "-"
			}
			names = append(names, name)
		}
		if got := strings.Join(names, " "); got != test.want {
			t.Errorf("%s has fields\n  %s\nwant\n  %s", typ.Name(), got, test.want)
		}
	}
}

func TestPlace_SocketInADeepDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("deep/", 40))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	p := Place(dir)
	for range 2 { // an old socket is no hindrance
		l, err := p.Listen()
		if err != nil {
			t.Fatal(err)
		}
		srv := &http.Server{Handler: http.NotFoundHandler()}
		go func() { _ = srv.Serve(l) }()
		c, err := p.Dial(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
		_ = srv.Close()
	}
}

func TestPlace_LockedOnce(t *testing.T) {
	p := Place(t.TempDir())
	lock, err := p.Lock()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Lock(); !errs.Is(err, errs.Conflict) {
		t.Errorf("second lock: %v, want conflict", err)
	}
	_ = lock.Close()
	if lock, err = p.Lock(); err != nil {
		t.Errorf("after the first was let go: %v", err)
	}
	_ = lock.Close()
}

func TestPlace_RecordedBeforeAnything(t *testing.T) {
	p := Place(t.TempDir())
	if _, err := p.Recorded(); !errs.Is(err, errs.NotFound) {
		t.Errorf("no record: %v, want not_found", err)
	}
	if err := os.WriteFile(filepath.Join(string(p), processFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Recorded(); !errs.Is(err, errs.Internal) {
		t.Errorf("half a record: %v, want internal", err)
	}
}

func TestProcessStart_OfAZombieIsNotFound(t *testing.T) {
	cmd := exec.Command("sleep", "100")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	start, err := ProcessStart(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	boot, err := BootID()
	if err != nil {
		t.Fatal(err)
	}
	p := Process{PID: cmd.Process.Pid, Start: start, BootID: boot}
	if alive, err := p.Alive(); !alive || err != nil {
		t.Errorf("alive %v, %v", alive, err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if alive, err := p.Alive(); alive || err != nil {
		t.Errorf("after its end: alive %v, %v", alive, err)
	}
}
