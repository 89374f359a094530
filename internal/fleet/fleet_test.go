package fleet

import (
	"testing"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

func node(id string, mem int64, used int64) Candidate {
	return Candidate{
		Node: model.Node{ID: model.NodeID(id), Name: id, Region: model.DefaultRegion, Driver: model.DriverGVisor,
			Capacity: model.Capacity{VCPUs: 16, Memory: mem << 30, Disk: 400 << 30}},
		Used: model.Capacity{Memory: used << 30},
	}
}

func need(mem int64) Need {
	return Need{Region: model.DefaultRegion, Shape: model.Shape{VCPUs: 1, Memory: mem << 30, Disk: 16 << 30}, Drivers: []model.DriverName{model.DriverGVisor}}
}

func TestChoose_Refusals(t *testing.T) {
	silent := node("a", 8, 0)
	silent.Silent = true
	abroad := node("a", 8, 0)
	abroad.Node.Region = "mars"
	docker := node("a", 8, 0)
	docker.Node.Driver = "docker"
	big := need(1)
	big.Shape.Disk = 101 << 30
	for _, c := range []struct {
		name string
		cs   []Candidate
		n    Need
		want errs.Kind
	}{
		{"no nodes", nil, need(1), errs.Unavailable},
		{"another region", []Candidate{abroad}, need(1), errs.Unavailable},
		{"silent", []Candidate{silent}, need(1), errs.Unavailable},
		{"driver", []Candidate{docker}, need(1), errs.Unsupported},
		{"never fits, and silent", []Candidate{silent}, need(9), errs.Invalid},
		{"never fits", []Candidate{node("a", 8, 0)}, need(9), errs.Invalid},
		{"disk never fits", []Candidate{node("a", 8, 0)}, big, errs.Invalid},
		{"full now", []Candidate{node("a", 8, 7)}, need(2), errs.Exhausted},
		{"the only one that fits is silent", []Candidate{silent, node("b", 8, 8)}, need(2), errs.Exhausted},
	} {
		id, err := Choose(c.cs, c.n)
		if errs.KindOf(err) != c.want || errs.HintOf(err) == "" {
			t.Errorf("%s: got %q, %v (kind %s, hint %q), want kind %s with a hint", c.name, id, err, errs.KindOf(err), errs.HintOf(err), c.want)
		}
	}
}

// A refusal gives sizes as people write them, and the rule that it applies.
func TestChoose_RefusalsSaySizes(t *testing.T) {
	big, small := need(1), need(1)
	big.Shape.Disk, small.Shape.Disk = 101<<30, 1536<<20
	used := node("a", 8, 0)
	used.Used.Disk = 399 << 30
	for _, c := range []struct {
		n    Need
		cs   []Candidate
		want string
	}{
		{big, []Candidate{node("a", 8, 0)}, "a disk of 101 GiB is larger than any node takes: one disk may be a quarter of the disk that its node offers, here 100 GiB"},
		{small, []Candidate{used}, "no node has room: node a has 399 GiB of 400 GiB of disk charged, and 1.5 GiB more are asked"},
		{need(2), []Candidate{node("a", 8, 7)}, "no node has room: node a has 7 GiB of 8 GiB of memory charged, and 2 GiB more are asked"},
		{need(9), []Candidate{node("a", 8, 0)}, "1 vCPUs and 9 GiB of memory are more than any node has"},
	} {
		if _, err := Choose(c.cs, c.n); err == nil || err.Error() != c.want {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}

func TestChoose_MostFreeMemoryByPreferredDriver(t *testing.T) {
	docker := node("d", 64, 0)
	docker.Node.Driver = "docker"
	cs := []Candidate{node("a", 8, 4), node("b", 16, 4), node("c", 64, 63), docker}
	n := need(2)
	n.Drivers = []model.DriverName{model.DriverGVisor, "docker"}
	if id, err := Choose(cs, n); err != nil || id != "b" {
		t.Errorf("got %q, %v, want b", id, err)
	}
	n.Drivers = []model.DriverName{"docker", model.DriverGVisor}
	if id, err := Choose(cs, n); err != nil || id != "d" {
		t.Errorf("got %q, %v, want d", id, err)
	}
}
