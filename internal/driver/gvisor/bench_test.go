package gvisor

import (
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/billethq/billet/internal/driver/drivertest"
	"github.com/billethq/billet/internal/testenv"
)

// BenchmarkStart compares a start by the driver with a bare `runsc run` of the
// same bundle on the same plain directory, each until PID 1 has answered. The
// two alternate, and the ratio is the median of the pairs'.
func BenchmarkStart(b *testing.B) {
	p := newPlace(b)
	p.d = newDriver(b, testenv.NeedRunsc(b), drivertest.PID1(b))
	timed := func(start func()) time.Duration {
		begin := time.Now()
		start()
		p.ask(b, `{"op":"ping"}`)
		took := time.Since(begin)
		p.delete(b)
		return took
	}
	var ratios, bare, ours []float64
	for b.Loop() {
		plain := timed(func() { p.runBare(b) })
		driven := timed(func() { p.start(b) })
		bare, ours = append(bare, plain.Seconds()*1e3), append(ours, driven.Seconds()*1e3)
		ratios = append(ratios, driven.Seconds()/plain.Seconds())
	}
	report := func(unit string, values []float64) {
		slices.Sort(values)
		b.ReportMetric(values[len(values)/2], unit)
		b.ReportMetric(values[len(values)*95/100], unit+"-p95")
	}
	report("ratio", ratios)
	report("bare-ms", bare)
	report("driver-ms", ours)
	b.ReportMetric(0, "ns/op") // the sum of both means nothing
}

// runBare starts the guest as one would by hand: runsc makes the cgroup, too.
func (p place) runBare(b *testing.B) {
	b.Helper()
	g, err := p.d.open(p.Ref)
	if err != nil {
		b.Fatal(err)
	}
	if err := writeBundle(g.dir.path(bundleDir), bundle(p.Spec, g.group.Path())); err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(p.d.runsc, "--root="+stateDir, "--overlay2=none", "--network=none", "--host-uds=open",
		"--gofer-network-namespace=new", "run", "--detach", "--bundle="+g.dir.path(bundleDir), containerID)
	cmd.Dir = p.Dir
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Run(); err != nil {
		b.Fatal(err)
	}
}
