package client

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/volume"
	"github.com/billethq/billet/internal/volume/protocol"
)

func TestVolume_IdleSavesNothing(t *testing.T) {
	w := newWorld(t)
	v := w.spawn(w.config(w.image))
	v.read("big")
	if v.seal(true) {
		t.Errorf("a volume that was only read has something to save: %+v", v.status())
	}
	v.write("note", []byte("x"))
	v.save(true)
	for range 2 { // thawing wrote the superblock
		if v.seal(true) {
			t.Errorf("after a save there is something to save: %+v", v.status())
		}
		v.read("note")
	}
	w.check(v.Unmount(w.ctx))
	if v.seal(true) {
		t.Errorf("unmounting an idle volume made something to save: %+v", v.status())
	}
	w.check(v.Close(w.ctx))
}

// TestVolume_GrownAndIdleSavesNothing: growing and mounting alone are no reason
// to upload, however often a flush is due; with the first write of a guest they
// become durable too.
func TestVolume_GrownAndIdleSavesNothing(t *testing.T) {
	w := newWorld(t)
	cfg := w.config(w.image)
	cfg.Size = 32 * gib
	stored := w.stored()
	v := w.spawn(cfg)
	idle := func(when string) {
		t.Helper()
		for range 3 {
			if st := v.status(); v.seal(true) || st.UnsavedBytes != 0 {
				t.Errorf("%s there is something to save: %+v", when, v.status())
			}
			v.read("big")
		}
	}
	idle("after growing")
	w.check(v.Unmount(w.ctx))
	if v.seal(true) {
		t.Errorf("unmounting made something to save: %+v", v.status())
	}
	w.check(v.Close(w.ctx))
	if got := w.stored(); got != stored {
		t.Errorf("an idle volume has stored %d bytes", got-stored)
	}

	cfg = w.config(w.image)
	cfg.Size = 32 * gib
	v = w.spawn(cfg)
	// The smallest change there is, to an inode that growing has rewritten too.
	w.check(v.in(func() error { return os.Chmod(v.path("lost+found"), 0o711) }))
	up := v.save(true)
	if up.WrittenBytes < 300<<10 {
		t.Errorf("%d bytes became durable, growing alone wrote more", up.WrittenBytes)
	}
	if v.seal(true) {
		t.Errorf("after the save there is something to save: %+v", v.status())
	}
	v.kill()

	cfg = w.config(up.Root) // another host
	cfg.Size = 32 * gib
	v = w.spawn(cfg)
	if n := v.status().Counters.Writes; n > 16 {
		t.Errorf("the start elsewhere made %d writes: it has grown again", n)
	}
	var st unix.Statfs_t
	var info os.FileInfo
	w.check(v.in(func() (err error) {
		if err = unix.Statfs(v.path(""), &st); err == nil {
			info, err = os.Stat(v.path("lost+found"))
		}
		return err
	}))
	if got := int64(st.Blocks) * st.Bsize; got < cfg.Size*9/10 || info.Mode().Perm() != 0o711 {
		t.Errorf("elsewhere the file system has %d bytes, lost+found is %v", got, info.Mode())
	}
	idle("elsewhere")
	v.kill()
}

func TestVolume_GrowsOnceAndOpensAlike(t *testing.T) {
	w := newWorld(t)
	type cost struct{ fetched, reads, writes int64 }
	var costs []cost
	for _, size := range []int64{gib, 32 * gib} {
		w.epoch++
		w.seq = 0
		cfg := w.config(w.image)
		cfg.Size = size
		v := w.spawn(cfg)
		t.Logf("%d GiB: %v", size/gib, v.ready.Steps)
		var st unix.Statfs_t
		w.check(v.in(func() error { return unix.Statfs(v.path(""), &st) }))
		if got := int64(st.Blocks) * st.Bsize; got < size*9/10 {
			t.Errorf("the file system has %d bytes on a device of %d", got, size)
		}
		v.write("note", []byte("x"))
		w.check(v.Unmount(w.ctx))
		root := v.saveAll()
		v.kill()

		cfg = w.config(root)
		cfg.Size = size
		v = w.spawn(cfg)
		c := v.status().Counters
		costs = append(costs, cost{c.Fetch.Fetched, c.Reads, c.Writes})
		if v.seal(true) {
			t.Error("the second start grew again")
		}
		v.kill()
	}
	// The larger disk has three more blocks of group descriptors, nothing else.
	small, large := costs[0], costs[1]
	t.Logf("opening 1 GiB %+v, 32 GiB %+v", small, large)
	if large.fetched > small.fetched+1 || large.reads > small.reads+4 || large.writes > small.writes+4 {
		t.Errorf("opening 32 GiB costs %+v, 1 GiB %+v", large, small)
	}
}

// TestVolume_SaysHowItWasLeft: a file system that the kernel gave up is unmounted
// like any other, and its root is one as after a power cut.
func TestVolume_SaysHowItWasLeft(t *testing.T) {
	giveUp := func(v *vol) {
		v.w.check(v.in(func() error {
			dir, err := os.Open(v.path(""))
			if err != nil {
				return err
			}
			defer dir.Close()
			const (
				shutdown = 0x8004587d // EXT4_IOC_SHUTDOWN
				noFlush  = 2          // without writing out the journal
			)
			return unix.IoctlSetPointerInt(int(dir.Fd()), shutdown, noFlush)
		}))
	}
	unmount := func(v *vol) { v.w.check(v.Unmount(v.w.ctx)) }
	for name, test := range map[string]struct {
		leave []func(*vol)
		want  volume.Consistency
	}{
		"mounted":             {nil, volume.Frozen},
		"unmounted":           {[]func(*vol){unmount}, volume.Frozen},
		"given up, unmounted": {[]func(*vol){giveUp, unmount}, volume.Crash},
	} {
		w := newWorld(t)
		v := w.spawn(w.config(w.image))
		v.write("note", []byte("x"))
		for _, leave := range test.leave {
			leave(v)
		}
		up := v.save(true)
		m, err := w.store.LoadManifest(w.ctx, up.Root)
		w.check(err)
		if up.Consistency != test.want || m.Meta().Consistency != test.want {
			t.Errorf("%s: saved as %s, its root says %s, want %s", name, up.Consistency, m.Meta().Consistency, test.want)
		}
		v.kill()
		v = w.spawn(w.config(up.Root))
		if got := v.read("note"); string(got) != "x" {
			t.Errorf("%s: note reads %q", name, got)
		}
		v.kill()
	}
}

func TestVolume_IsAdopted(t *testing.T) {
	w := newWorld(t)
	v := w.spawn(w.config(w.image))
	c, st, err := Attach(w.ctx, w.command, v.cfg.Dir)
	w.check(err)
	if st.PID != v.ready.PID || st.MountNS != v.ready.MountNS || st.Root != w.image || !st.Mounted {
		t.Errorf("status of the adopted process %+v, it said %+v", st, v.ready)
	}
	// A signal to end, or the end of the one who started it, ends nothing.
	for _, s := range []unix.Signal{unix.SIGTERM, unix.SIGHUP, unix.SIGPIPE, unix.SIGINT} {
		w.check(unix.Kill(st.PID, s))
	}
	if _, err := c.Status(w.ctx); err != nil {
		t.Errorf("after signals: %v", err)
	}
	if sid, err := unix.Getsid(st.PID); err != nil || sid != st.PID {
		t.Errorf("session %d, %v: want its own", sid, err)
	}
	// The adopter is no parent, and sees the end all the same.
	ended := make(chan error, 1)
	go func() { ended <- c.Wait(w.ctx) }()
	short, cancel := context.WithCancel(w.ctx)
	cancel()
	if err := c.Wait(short); err == nil {
		t.Error("wait returned while the process lives")
	}
	w.check(c.Kill(w.ctx))
	w.check(<-ended)
	w.check(c.Gone())
	if _, _, err := Attach(w.ctx, w.command, v.cfg.Dir); !errs.Is(err, errs.NotFound) {
		t.Errorf("attach to a dead process: %v, want not_found", err)
	}
}

func TestAttach_TellsARecycledNumber(t *testing.T) {
	place := protocol.Place(t.TempDir())
	boot, err := protocol.BootID()
	if err != nil {
		t.Fatal(err)
	}
	start, err := protocol.ProcessStart(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	ours := protocol.Process{Version: protocol.Version, PID: os.Getpid(), Start: start, BootID: boot}
	for name, change := range map[string]func(*protocol.Process){
		"start": func(p *protocol.Process) { p.Start++ },
		"boot":  func(p *protocol.Process) { p.BootID = "another" },
	} {
		p := ours
		change(&p)
		if err := place.Record(p); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Attach(t.Context(), nil, string(place)); !errs.Is(err, errs.NotFound) {
			t.Errorf("%s differs: %v, want not_found", name, err)
		}
		c, err := Remains(nil, string(place))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Wait(t.Context()); err != nil { // not for a process that is not meant
			t.Errorf("%s differs: wait: %v", name, err)
		}
	}
	p := ours
	p.Version = protocol.Version + 1
	if err := place.Record(p); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Attach(t.Context(), nil, string(place)); !errs.Is(err, errs.Unsupported) {
		t.Errorf("another version: %v, want unsupported", err)
	}
}

func TestVolume_SpeaksOneVersion(t *testing.T) {
	w := newWorld(t)
	v := w.spawn(w.config(w.image))
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return protocol.Place(v.cfg.Dir).Dial(ctx) },
	}}
	ask := func(path string) (int, []byte) {
		resp, err := client.Get("http://volume" + path)
		w.check(err)
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		w.check(err)
		return resp.StatusCode, raw
	}
	code, raw := ask("/v2/status")
	var p protocol.Problem
	w.check(json.Unmarshal(raw, &p))
	if code == http.StatusOK || p.Kind != errs.Unsupported || !strings.Contains(p.Message, "version 1") || p.Hint == "" {
		t.Errorf("version 2: %d %s", code, raw)
	}
	if code, raw := ask(protocol.PathStatus); code != http.StatusOK {
		t.Errorf("version 1: %d %s", code, raw)
	}
	cfg := w.config(w.image)
	cfg.Version++
	if _, _, err := Spawn(w.ctx, w.command, cfg, nil); !errs.Is(err, errs.Unsupported) {
		t.Errorf("spawn with version %d: %v, want unsupported", cfg.Version, err)
	}
}

func TestVolume_IsServedOnce(t *testing.T) {
	w := newWorld(t)
	v := w.spawn(w.config(w.image))
	if _, _, err := Spawn(w.ctx, w.command, v.cfg, nil); !errs.Is(err, errs.Conflict) {
		t.Errorf("second process on one directory: %v, want conflict", err)
	}
	if got := v.read("etc/passwd"); len(got) == 0 || !v.status().Mounted {
		t.Error("the first one was disturbed")
	}
}

func TestVolume_KeepsKeysToItself(t *testing.T) {
	w := newWorld(t)
	v := w.spawn(w.config(w.image))
	key := base64.StdEncoding.EncodeToString(w.keys[0].Key)
	for _, file := range []string{"cmdline", "environ"} {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", v.ready.PID, file))
		w.check(err)
		if bytes.Contains(raw, []byte(key)) || bytes.Contains(raw, w.keys[0].Key) {
			t.Errorf("%s holds a domain key", file)
		}
	}
	entries, err := os.ReadDir(v.cfg.Dir)
	w.check(err)
	for _, e := range entries {
		if raw, err := os.ReadFile(v.cfg.Dir + "/" + e.Name()); err == nil && bytes.Contains(raw, []byte(key)) {
			t.Errorf("%s holds a domain key", e.Name())
		}
	}
}

func TestVolume_IsSmallWhenIdle(t *testing.T) {
	w := newWorld(t)
	w.command = buildProcess(t, "") // as it is shipped: no race detector
	v := w.spawn(w.config(w.image))
	before := pss(t, v.ready.PID)
	v.write("work", bytes.Repeat(bigFile(), 8))
	v.save(true)
	after := pss(t, v.ready.PID)
	t.Logf("proportional set size %d KiB, after a save of 25 MiB %d KiB", before, after)
	if most := 20 << 10; before > most || after > most {
		t.Errorf("%d KiB, then %d, want at most %d", before, after, most)
	}
}

// pss is a process's proportional set size in KiB.
func pss(t *testing.T, pid int) int {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		var n int
		if _, err := fmt.Sscanf(line, "Pss: %d kB", &n); err == nil {
			return n
		}
	}
	t.Fatal("no Pss line")
	return 0
}

func TestSpawn_ReportsWhatIsWrong(t *testing.T) {
	w := newWorld(t)
	gone := w.config("b3:" + w.image[3:60] + "0000000")
	for name, test := range map[string]struct {
		change func(*protocol.Config)
		kind   errs.Kind
	}{
		"size of zero":      {func(c *protocol.Config) { c.Size = 0 }, errs.Invalid},
		"smaller than root": {func(c *protocol.Config) { c.Size = mib }, errs.Invalid},
		"malformed root":    {func(c *protocol.Config) { c.Root = "b3:zz" }, errs.Invalid},
		"unknown root":      {func(c *protocol.Config) { c.Root = gone.Root }, errs.Internal},
		"no key":            {func(c *protocol.Config) { c.DomainKeys = nil }, errs.Invalid},
		"relative path":     {func(c *protocol.Config) { c.Dir = "volume" }, errs.Invalid},
	} {
		cfg := w.config(w.image)
		test.change(&cfg)
		_, _, err := Spawn(w.ctx, w.command, cfg, nil)
		if !errs.Is(err, test.kind) {
			t.Errorf("%s: %v, want kind %s", name, err, test.kind)
		}
	}
	if _, _, err := Spawn(w.ctx, []string{"/bin/false"}, w.config(w.image), nil); !errs.Is(err, errs.Unavailable) {
		t.Errorf("a program that is no volume process: %v, want unavailable", err)
	}
}
