package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

const whole = `# everything there is
state: /srv/billet
api:
  listen: 127.0.0.1:9000
gateway: {listen: "[::1]:9001", ssh: "[::1]:9022", token_file: /etc/billet/gateway.token, http: "127.0.0.1:9002", domain: dev.example, resume_deadline: 30s}
node:
  name: rack-7
  driver: gvisor
  server: http://127.0.0.1:9000
  token_file: /etc/billet/node.token
  cache: 100GiB
  capacity: {vcpus: 8, memory: 32GiB, disk: 1TiB}
store:
  dir: /mnt/objects
flush_every: 90s
stop_grace: 0s
memory:
  keep: 48h
  classes: {agent: 0s, ci: 1h}
tiers:
- name: tiny
  vcpus: 1
  memory: 512 MiB
  disk: 2GiB
  processes: 128
  open_files: 1024
  image: debian
  drivers: [gvisor]
  classes: [agent, ci]
  max: 3
  memory_keep: 0s
- {name: plain, vcpus: 2, memory: 1GiB, disk: 1GiB}
`

func TestParse_ReadsEverySetting(t *testing.T) {
	got, err := Parse("billet.yaml", []byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		State: "/srv/billet", APIListen: "127.0.0.1:9000", GatewayListen: "[::1]:9001", SSHListen: "[::1]:9022", GatewayTokenFile: "/etc/billet/gateway.token",
		EntranceListen: "127.0.0.1:9002", EntranceDomain: "dev.example", ResumeDeadline: 30 * time.Second,
		Node: Node{
			Name: "rack-7", Driver: "gvisor", Server: "http://127.0.0.1:9000", TokenFile: "/etc/billet/node.token",
			CacheLimit: 100 << 30, Capacity: model.Capacity{VCPUs: 8, Memory: 32 << 30, Disk: 1 << 40},
		},
		StoreDir: "/mnt/objects", FlushEvery: 90 * time.Second, StopGrace: 0,
		MemoryKeep: 48 * time.Hour, ClassMemoryKeep: map[model.Class]time.Duration{"agent": model.KeepNothing, "ci": time.Hour},
		Tiers: []model.Tier{
			{
				Name: "tiny", Image: "debian", Drivers: []model.DriverName{"gvisor"}, Classes: []model.Class{"agent", "ci"}, Max: 3, MemoryKeep: model.KeepNothing,
				Shape: model.Shape{VCPUs: 1, Memory: 512 << 20, Disk: 2 << 30, Processes: 128, OpenFiles: 1024},
			},
			{
				Name: "plain", Image: "base", Drivers: []model.DriverName{"gvisor"},
				Shape: model.Shape{VCPUs: 2, Memory: 1 << 30, Disk: 1 << 30, Processes: 4096, OpenFiles: 65536},
			},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestParse_ReportsEveryMistakeWithItsLine(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string // parts of the message and hint, each with its line
	}{
		"unknown keys": {
			"stat: /x\nnode:\n  nmae: a\n  cach: 1GiB\nwhatever: 1\n",
			[]string{"has 4 mistakes", `line 1: unknown key "stat" (did you mean "state"?)`, `line 3: unknown key "node.nmae" (did you mean "name"?)`, `line 4: unknown key "node.cach"`, `line 5: unknown key "whatever" (known here: state, api,`},
		},
		"one mistake is a sentence": {
			"flush_evry: 5m\n",
			[]string{`f.yaml:1: unknown key "flush_evry"`, `did you mean "flush_every"?`},
		},
		"values of every kind": {
			"state: here\napi: {listen: '0.0.0.0:80'}\ngateway: {listen: ':7481'}\nnode: {name: ../etc, driver: magic, cache: 5GB, capacity: {vcpus: none}}\nflush_every: often\nstop_grace: 100h\nstore: [a]\n",
			[]string{
				"has 10 mistakes", `line 1: state: "here" is not an absolute path`,
				`line 2: api.listen: "0.0.0.0:80" is not a loopback address: without mutual TLS`, `line 3: gateway.listen: ":7481" means every address`,
				`line 4: node.name: node name "../etc" is not a DNS label`, `node.driver: there is no driver "magic"`, `node.cache: "5GB" is not a size`,
				`node.capacity.vcpus: "none" is not a whole number`, `line 5: flush_every: "often" is not a duration`, `line 6: stop_grace is 100h, allowed are 0s to 10m0s`,
				"line 7: store is a list, not a mapping",
			},
		},
		"tiers as a whole": {
			"tiers:\n- name: a\n  vcpus: 0\n  memory: 1GiB\n  disk: 0\n- name: a\n  vcpus: 1\n  memory: 1GiB\n  disk: 1025KiB\n- vcpus: 1\n- {name: x/y, vcpus: 1, memory: 1GiB, disk: 100TiB, max: -1, drivers: [qemu], classes: [king, ci, ci], image: A}\n",
			[]string{
				"line 3: tiers[0].vcpus is 0, allowed are 1 to 1024", "line 5: tiers[0].disk is 0, allowed are 64MiB to 16TiB",
				`tiers[1]: tier "a" is on line 2 already`, "line 9: tiers[1].disk is 1025KiB",
				"tiers[2] has no name", "tiers[2] has no memory", "tiers[2] has no disk",
				`tiers[3].name: tier name "x/y"`, "tiers[3].disk is 100TiB", "tiers[3].max is -1", `tiers[3].drivers[0]: there is no driver "qemu"`,
				`tiers[3].classes[0]: there is no class "king"`, `tiers[3].classes[2]: "ci" appears twice`, `tiers[3].image: image name "A"`,
			},
		},
		"wrong shapes": {
			"state: [a]\napi: x\ntiers: {}\nnode:\nstore: {dir: }\n",
			[]string{"line 1: state is a list, not a single value", "line 2: api is a single value, not a mapping", "line 3: tiers is a mapping, not a list", "line 4: node is empty, not a mapping", "line 5: store.dir is empty"},
		},
		"no tier":         {"tiers: []\n", []string{"tiers has no tier"}},
		"a key twice":     {"state: /a\nstate: /b\n", []string{"f.yaml:2:", `key "state" appears twice, first on line 1`}},
		"not a mapping":   {"- a\n", []string{"the file is a list, not a mapping"}},
		"not yaml":        {"a: [1\nb: {", []string{"f.yaml is not YAML", "line"}},
		"two documents":   {"state: /a\n---\nstate: /b\n", []string{"f.yaml is not YAML"}},
		"an alias":        {"state: &a /x\nstore: {dir: *a}\n", []string{"store.dir is an alias"}},
		"beyond an int64": {"node: {cache: 9999999999TiB}\n", []string{"is too large"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("f.yaml", []byte(c.text))
			if !errs.Is(err, errs.Invalid) {
				t.Fatalf("got %v, want an invalid error", err)
			}
			got := err.Error() + "\nhint: " + errs.HintOf(err)
			for _, want := range c.want {
				if !strings.Contains(got, want) {
					t.Errorf("got:\n%s\nwant in it: %s", got, want)
				}
			}
		})
	}
}

func TestParse_LinesAreAscending(t *testing.T) {
	_, err := Parse("f", []byte("c: 1\nb: 2\nnode: {x: 1}\na: 3\n"))
	var at []int
	for _, line := range []string{"line 1", "line 2", "line 3", "line 4"} {
		at = append(at, strings.Index(err.Error(), line))
	}
	for i := 1; i < len(at); i++ {
		if at[i] <= at[i-1] {
			t.Errorf("lines are not in order: %v\n%s", at, err)
		}
	}
}

func TestLoad_DefaultsNeedNoFile(t *testing.T) {
	c, err := Load("")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Default(), c); diff != "" {
		t.Error(diff)
	}
	for _, text := range []string{"", "\n", "# nothing\n", "---\n"} {
		got, err := Parse("f", []byte(text))
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if diff := cmp.Diff(c, got); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	}
}

func TestLoad_Files(t *testing.T) {
	dir := t.TempDir()
	if _, err := Load(filepath.Join(dir, "none.yaml")); !errs.Is(err, errs.NotFound) || errs.HintOf(err) == "" {
		t.Errorf("missing file: got %v", err)
	}
	if _, err := Load(dir); !errs.Is(err, errs.Invalid) {
		t.Errorf("directory: got %v", err)
	}
	big := filepath.Join(dir, "big.yaml")
	if err := os.WriteFile(big, make([]byte, maxFileBytes+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(big); !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "larger than 1MiB") {
		t.Errorf("big file: got %v", err)
	}
}

func TestConfig_PathsFollowState(t *testing.T) {
	c, err := Default().WithState("/srv/b")
	if err != nil {
		t.Fatal(err)
	}
	got := []string{c.Socket(), c.ServerDir(), c.NodeDir(), c.Objects(), c.NodeTokenFile(), c.NodeServer()}
	want := []string{"/srv/b/billet.sock", "/srv/b/server", "/srv/b/node", "/srv/b/objects", "/srv/b/node/token", "unix:///srv/b/billet.sock"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := c.WithState(""); !errs.Is(err, errs.Invalid) {
		t.Errorf("empty state: got %v", err)
	}
}

func TestHostLabel_IsAlwaysAName(t *testing.T) {
	for host, want := range map[string]string{
		"Box.example.org": "box", "my_box": "my-box", "-": "node", "": "node", "ünïcode": "n-code",
		strings.Repeat("a", 60): strings.Repeat("a", 40), "abcdefghij0123456789": "node",
	} {
		if got := hostLabel(host, nil); got != want {
			t.Errorf("hostLabel(%q) = %q, want %q", host, got, want)
		}
	}
}

func TestParseSize(t *testing.T) {
	for s, want := range map[string]int64{"0": 0, "1": 1, "16GiB": 16 << 30, "512 MiB": 512 << 20, "3KiB": 3072, "2TiB": 2 << 40} {
		if got, err := ParseSize(s); err != nil || got != want {
			t.Errorf("ParseSize(%q) = %d, %v, want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "GiB", "-1", "+1", "1.5GiB", "1GB", "1 G", "0x10", "9223372036854775808", "8388608TiB", "1e3"} {
		if got, err := ParseSize(s); err == nil {
			t.Errorf("ParseSize(%q) = %d, want an error", s, got)
		}
	}
}

func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"16GiB", "0", "1 TiB", "-5MiB", "9999999999TiB"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseSize(s)
		if err != nil {
			return
		}
		if n < 0 {
			t.Fatalf("ParseSize(%q) = %d", s, n)
		}
		if back, err := ParseSize(FormatSize(n)); err != nil || back != n {
			t.Fatalf("ParseSize(FormatSize(%d)) = %d, %v", n, back, err)
		}
	})
}

// FuzzParse holds that no text makes Parse panic or return a configuration
// that breaks the rules of tiers.
func FuzzParse(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte("tiers: [{name: a}]"))
	f.Add([]byte("node: &a {capacity: *a}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("f", data)
		if err != nil {
			if !errs.Is(err, errs.Invalid) {
				t.Fatalf("kind of %v is %s", err, errs.KindOf(err))
			}
			return
		}
		if len(c.Tiers) == 0 || !filepath.IsAbs(c.State) {
			t.Fatalf("accepted %+v", c)
		}
		for _, tier := range c.Tiers {
			if model.CheckName("tier", tier.Name) != nil || tier.Shape.VCPUs < 1 || tier.Shape.Memory < minMemory || tier.Shape.Disk < minDisk {
				t.Fatalf("accepted tier %+v", tier)
			}
		}
	})
}
