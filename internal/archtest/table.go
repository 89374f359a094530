package archtest

import (
	"path"
	"strings"
)

// exception allows a place what a rule forbids, and says why.
type exception struct{ place, why string }

type exceptions []exception

// covers reports whether a directory or file is one of the places or lies
// below one. "*" in a place stands for one segment.
func (e exceptions) covers(name string) bool {
	for _, x := range e {
		if within(name, x.place) {
			return true
		}
	}
	return false
}

// within reports whether name matches pattern or lies below what does.
func within(name, pattern string) bool {
	for ; name != "."; name = path.Dir(name) {
		if ok, _ := path.Match(pattern, name); ok {
			return true
		}
	}
	return false
}

// layers is the house from the roof down. A package may import what lies in a
// lower layer, or below its own entry: internal/volume/fuse belongs to
// internal/volume. Entries that end in "*" are parts of their own that never
// import each other. The longest entry that fits a package is its place.
func layers() [][]string {
	return [][]string{
		{"cmd/*"},
		{"internal/cli"},
		{"internal/daemon"},
		{"internal/gateway", "internal/httpapi", "internal/e2b", "internal/mcp"},
		{"internal/control", "internal/node"},
		{"internal/image"},
		{"internal/volume", "internal/guest", "internal/driver/*", "internal/ledger/*", "internal/blob/*"},
		{"internal/ledger/sqlstore", "internal/road", "internal/cgroup", "internal/guest/guestpath"},
		{"internal/config"},
		{"internal/api", "internal/driver", "internal/ledger", "internal/blob"},
		{"internal/fleet", "internal/idle"},
		{"internal/model"},
		{"internal/atomicfile", "internal/clock", "internal/errs", "internal/failpoint"},
	}
}

// adapters are the implementations of ports. sqlstore is no adapter: it is
// what the two SQL ledgers share.
func adapters() []string {
	return []string{"internal/driver/*", "internal/ledger/*", "internal/blob/*"}
}

// testOnly are the packages that no shipped binary holds.
func testOnly() exceptions {
	return exceptions{
		{"scripts", "programs that a person runs from the tree"},
		{"internal/archtest", "the rules of the house"},
		{"internal/testenv", "what a test needs of its machine"},
		{"internal/faults", "injects what a deployment must survive"},
		{"internal/sim", "the simulator"},
		{"internal/*/*test", "conformance suites of the ports"},
		{"internal/blob/faulty", "a hostile object store"},
	}
}

// confined are the modules with one home each.
func confined() map[string]exceptions {
	return map[string]exceptions{
		"github.com/google/renameio/v2":          {{"internal/atomicfile", "unfinished files lie beside the finished"}},
		"github.com/spf13/cobra":                 {{"internal/cli", "verbs and flags"}},
		"go.yaml.in/yaml/v4":                     {{"internal/config", "settings"}},
		"modernc.org/sqlite":                     {{"internal/ledger/sqlite", "the embedded ledger"}},
		"github.com/jackc/pgx/v5":                {{"internal/ledger/postgres", "the shared ledger"}},
		"github.com/hanwen/go-fuse/v2":           {{"internal/volume", "the device file"}, {"internal/image", "the device file of an image that is being made"}},
		"github.com/google/go-containerregistry": {{"internal/image", "image references, layouts and archives"}},
		"github.com/hashicorp/yamux":             {{"internal/road", "streams of a session"}, {"internal/guest", "streams of the side channel"}},
		"github.com/pkg/sftp":                    {{"internal/guest/sftp", "file transfers"}},
		"golang.org/x/crypto":                    {{"internal/control", "keys and certificates"}, {"internal/gateway/sshd", "the protocol"}, {"internal/cli", "keys of the caller"}},
		"github.com/containerd/cgroups/v3":       {{"internal/cgroup", "limits and counters of a guest"}},
		"github.com/opencontainers/runtime-spec": {{"internal/driver/*", "the bundle that runsc reads"}},
		"connectrpc.com/connect":                 {{"internal/guest", "the process service's protocol"}},
		"google.golang.org/protobuf":             {{"internal/guest", "the process service's messages"}},
		"github.com/modelcontextprotocol/go-sdk": {{"internal/mcp", "the agents' protocol"}},
		"github.com/creack/pty":                  {{"internal/guest", "terminals in the guest"}},
		"github.com/zeebo/blake3":                {{"internal/volume", "names of blocks and roots"}},
		"github.com/klauspost/compress":          {{"internal/volume", "stored blocks"}, {"internal/image", "layers"}},
		"github.com/rogpeppe/go-internal":        {{"none", "testscript is for tests"}},
		"github.com/google/go-cmp":               {{"none", "go-cmp is for tests"}},
		"pgregory.net/rapid":                     {{"none", "rapid is for tests"}},
		"github.com/getkin/kin-openapi":          {{"none", "tests hold the handlers to openapi.yaml"}},
	}
}

// pure are the packages of the core, impure what they may not import.
func pure() []string { return []string{"internal/model", "internal/fleet", "internal/idle"} }

func impure() []string {
	return []string{
		"context", "crypto/rand", "database/sql", "io/ioutil", "log", "math/rand", "net", "os", "runtime", "sync", "syscall", "testing",
		module + "/internal/clock", module + "/internal/failpoint",
	}
}

func pureExceptions() exceptions {
	return exceptions{{"internal/model/ids.go", "NewID is the one source of ids; only the edges call it"}}
}

// mutable are package-level variables that are no tables, by "dir.name".
func mutable() exceptions {
	return exceptions{
		{"internal/testenv.built", "what this test process has built, once"},
		{"internal/testenv.postgres", "the one database server of a test process"},
	}
}

// constructors are calls whose results nobody changes.
func constructors() []string {
	return []string{
		"errors.New", "errs.New", "fmt.Errorf", "regexp.MustCompile", "template.Must", "strings.NewReplacer",
		"time.Date", "time.Unix", "crc32.MakeTable", "big.NewInt", "netip.MustParseAddr", "netip.MustParsePrefix",
	}
}

// vague are names that say nothing about what a package holds.
func vague() []string {
	return []string{"util", "utils", "common", "helper", "helpers", "types", "misc", "shared", "lib", "base", "core", "pkg"}
}

// maxLines is where a file needs a reason.
const maxLines = 500

func longFiles() exceptions {
	return exceptions{}
}

// realClock are the places that read the machine's clock.
func realClock() exceptions {
	return exceptions{
		{"internal/clock", "the one source of time"},
		{"internal/blob/dir", "compares with the times of files, which the kernel's clock gives"},
		{"internal/guest", "a guest has its own clock"},
	}
}

// sleepers are test files that may sleep outside a synctest bubble.
func sleepers() exceptions {
	return exceptions{
		{"internal/driver/gvisor/fault_test.go", "kills at moments spread over a start: the moment is the case"},
		{"internal/image/ext4/ext4_test.go", "lets the clock show another second: the time is what must not get into an image"},
		{"internal/control/awaiting_test.go", "its functions run in the synctest bubble of restarted"},
		{"bench/figures_test.go", "leaves a workspace idle for a while: the time is the workload"},
	}
}

// kindTables are the places that give every kind of error an answer.
func kindTables() exceptions {
	return exceptions{
		{"internal/api", "the HTTP status"},
		{"internal/cli", "the exit code"},
	}
}

// lists are the functions that return every constant of a type.
func lists() []struct{ dir, typ, fn string } {
	return []struct{ dir, typ, fn string }{
		{"internal/errs", "Kind", "Kinds"},
		{"internal/failpoint", "Step", "Steps"},
		{"internal/model", "InstanceState", "InstanceStates"},
	}
}

// stepPackages reach the failpoints; the rule holds once all of them exist.
func stepPackages() []string {
	return []string{"internal/control", "internal/node", "internal/volume", "internal/daemon", "cmd/billet"}
}

// layerOf returns the layer of a package and the entry that places it: the one
// with the most segments, and of two the one without "*". ok is false for a
// package that has no place.
func layerOf(dir string) (layer int, entry string, ok bool) {
	best := 0
	for i, row := range layers() {
		for _, e := range row {
			specific := 2 * (strings.Count(e, "/") + 1)
			if !strings.Contains(e, "*") {
				specific++
			}
			if within(dir, e) && specific > best {
				layer, entry, ok, best = i, e, true, specific
			}
		}
	}
	return layer, entry, ok
}

// part returns what a package belongs to: as much of its path as its entry has
// segments.
func part(dir, entry string) string {
	return strings.Join(strings.Split(dir, "/")[:strings.Count(entry, "/")+1], "/")
}
