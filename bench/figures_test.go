package bench

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/clock"
)

// BenchmarkCreate: from the request for a workspace on an imported image to
// the first output of an exec, against bare `runsc run`. Target: ≤ 2.
func BenchmarkCreate(b *testing.B) {
	w := newWorld(b)
	w.create("warm", api.CreateWorkspaceRequest{}) // the image's blocks are in the cache from here on
	w.remove("warm")
	var ours, bare []time.Duration
	n := 0
	for b.Loop() {
		n++
		name := fmt.Sprintf("w%d", n)
		rest()
		began := clock.Start()
		w.create(name, api.CreateWorkspaceRequest{})
		ours = append(ours, w.firstOutput(name, began))
		w.remove(name)
		rest()
		bare = append(bare, w.bareRun())
	}
	reportPairs(b, ours, bare)
}

// rest lets what follows a start or an end come to its own end, so that no
// measurement has it beside it.
func rest() { time.Sleep(1500 * time.Millisecond) }

// BenchmarkStart: from the start of a stopped workspace with a warm cache to
// the first output of an exec, against bare `runsc run`. Target: ≤ 1.5.
func BenchmarkStart(b *testing.B) {
	w := newWorld(b)
	w.create("one", api.CreateWorkspaceRequest{})
	w.stop("one")
	var ours, bare []time.Duration
	for b.Loop() {
		rest()
		ours = append(ours, w.timedStart("one"))
		rest()
		bare = append(bare, w.bareRun())
	}
	reportPairs(b, ours, bare)
}

func (w *world) timedStart(name string) time.Duration {
	w.b.Helper()
	began := clock.Start()
	w.startAgain(name)
	took := w.firstOutput(name, began)
	w.stop(name)
	return took
}

// BenchmarkStartDiskSize: start with a disk of 32 GiB against one of 1 GiB.
// Target: ≤ 1.1.
func BenchmarkStartDiskSize(b *testing.B) {
	w := newWorld(b)
	w.create("small", api.CreateWorkspaceRequest{})
	w.create("large", api.CreateWorkspaceRequest{Disk: 32 << 30})
	w.stop("small")
	w.stop("large")
	var large, small []time.Duration
	for b.Loop() {
		rest()
		large = append(large, w.timedStart("large"))
		rest()
		small = append(small, w.timedStart("small"))
	}
	reportPairs(b, large, small)
}

// BenchmarkStopUpload: what a stop stores after 100 MB of changes, against the
// compressed size of the same bytes in blocks of 1 MiB. Target: ≤ 1.3.
func BenchmarkStopUpload(b *testing.B) {
	w := newWorld(b)
	data := sample(b, 100<<20)
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		b.Fatal(err)
	}
	var packed int64
	for rest := data; len(rest) > 0; {
		n := min(1<<20, len(rest))
		packed += int64(len(enc.EncodeAll(rest[:n], nil)))
		rest = rest[n:]
	}
	// The guest gets the data from the workspace's own disk: written once,
	// outside the measurement, then copied.
	var ratios []float64
	n := 0
	for b.Loop() {
		n++
		name := fmt.Sprintf("u%d", n)
		w.create(name, api.CreateWorkspaceRequest{})
		before := w.stored()
		w.feed(name, data)
		w.stop(name)
		ratios = append(ratios, float64(w.stored()-before)/float64(packed))
		w.remove(name)
		rotate(data) // so that no block of this round is in the store already
	}
	b.ReportMetric(quantile(ratios, 0.5), "ratio-p50")
	b.ReportMetric(quantile(ratios, 0.95), "ratio-p95")
	b.ReportMetric(float64(packed)/(1<<20), "compressed-MiB")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkIdle: bytes and objects that ten flush intervals of an idle
// workspace add to the store. Target: 0.
func BenchmarkIdle(b *testing.B) {
	w := newWorld(b)
	w.create("one", api.CreateWorkspaceRequest{})
	w.exec("one", "/bin/sh", "-c", "echo x > /root/x; sync")
	time.Sleep(5 * time.Second) // what was written is flushed: flush_every is 1 s
	var grown []float64
	for b.Loop() {
		before := w.stored()
		time.Sleep(10 * time.Second)
		grown = append(grown, float64(w.stored()-before))
	}
	b.ReportMetric(quantile(grown, 0.5), "bytes-p50")
	b.ReportMetric(quantile(grown, 1), "bytes-max")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkMemory: proportional set size per idle workspace beside the sandbox
// process itself: the node's share, the volume process, the gofer and whatever
// else billet runs for it. Target: ≤ 40 MiB.
func BenchmarkMemory(b *testing.B) {
	w := newWorld(b)
	const count = 4
	before := pss(b, w.cmd.Process.Pid)
	for i := range count {
		w.create(fmt.Sprintf("m%d", i), api.CreateWorkspaceRequest{})
	}
	time.Sleep(10 * time.Second) // idle
	var per []float64
	for b.Loop() {
		total := pss(b, w.cmd.Process.Pid) - before
		for _, pid := range helpers(b, w.state) {
			total += pss(b, pid)
		}
		per = append(per, float64(total)/count/(1<<20))
	}
	b.ReportMetric(quantile(per, 0.5), "MiB-p50")
	b.ReportMetric(quantile(per, 0.95), "MiB-p95")
	b.ReportMetric(0, "ns/op")
}

// helpers finds the processes of instances but for the sandboxes themselves.
func helpers(b *testing.B, state string) []int {
	b.Helper()
	out, err := exec.Command("ps", "-eo", "pid=,args=").Output()
	if err != nil {
		b.Fatal(err)
	}
	var pids []int
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		pid, _ := strconv.Atoi(f[0])
		cwd, _ := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
		ours := strings.Contains(line, state) || strings.HasPrefix(cwd, state) || strings.HasSuffix(strings.TrimSpace(line), "billet volume")
		if !ours || strings.Contains(line, "runsc-sandbox") || strings.Contains(line, "billet up") {
			continue
		}
		pids = append(pids, pid)
	}
	return pids
}

func pss(b *testing.B, pid int) int64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0 // ended meanwhile, or a thread of the kernel
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "Pss:"); ok {
			n, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return n << 10
		}
	}
	return 0
}

// stored sums up the object store.
func (w *world) stored() int64 {
	w.b.Helper()
	var n int64
	err := filepath.WalkDir(filepath.Join(w.state, "s", "objects"), func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		if fi, err := e.Info(); err == nil {
			n += fi.Size()
		}
		return nil
	})
	if err != nil {
		w.b.Fatal(err)
	}
	return n
}

// sample returns n bytes of Go's own sources: real text, compressible as text is.
func sample(b *testing.B, n int) []byte {
	b.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		b.Fatal(err)
	}
	var buf bytes.Buffer
	_ = filepath.WalkDir(filepath.Join(strings.TrimSpace(string(root)), "src"), func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || buf.Len() >= n {
			return err
		}
		body, err := os.ReadFile(p)
		buf.Write(body)
		return err
	})
	for i := 0; buf.Len() < n; i++ {
		buf.WriteString(hex.EncodeToString(buf.Bytes()[i*4096 : (i+1)*4096])) // never twice the same block
	}
	return buf.Bytes()[:n]
}

// rotate changes every block of data.
func rotate(data []byte) {
	for i := 0; i < len(data); i += 1 << 20 {
		data[i]++
	}
}

// feed writes data to a file in the guest.
func (w *world) feed(name string, data []byte) {
	w.b.Helper()
	w.execWith(name, bytes.NewReader(data), "/bin/sh", "-c", "cat > /root/data; sync")
}
