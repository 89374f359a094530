// Package fleet decides where work goes. It is pure: its functions take a view
// of the fleet and return a choice or a refusal, and the ledger checks the
// choice again, serially, when it commits it.
package fleet

import (
	"slices"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// A node offers more vCPUs and disk than it has: a CPU is shared in time, and
// disks are sparse. Memory is offered as it is.
const (
	CPUOvercommit  = 8
	DiskOvercommit = 4
)

// Candidate is a node with what is charged to it.
type Candidate struct {
	Node   model.Node
	Used   model.Capacity
	Live   int  // instances
	Silent bool // its last sign of life is too old
	// Machine is the fingerprint of the host: whose memory it can restore.
	Machine string
}

// Need is what an instance asks of a node.
type Need struct {
	Region  model.RegionID
	Shape   model.Shape
	Drivers []model.DriverName // in order of preference
	// Machine, unless "", is preferred: there the guest goes on from its memory,
	// elsewhere it boots.
	Machine string
}

// Choose returns the node for n: of those that answer, match and have the
// headroom, one that can restore the instance's memory, then the one with the
// most memory free, by the most preferred driver.
// The refusal names what was missing everywhere:
// errs.Unavailable (no node answers), errs.Unsupported (no node has such a
// driver), errs.Invalid (no node could ever hold it), errs.Exhausted (full now).
func Choose(cs []Candidate, n Need) (model.NodeID, error) {
	if err := checkEver(cs, n); err != nil {
		return "", err
	}
	for _, d := range n.Drivers {
		best := -1
		for i, c := range cs {
			if c.Silent || c.Node.Region != n.Region || c.Node.Driver != d || !fits(c, n.Shape) {
				continue
			}
			if best < 0 || n.prefers(c, cs[best]) {
				best = i
			}
		}
		if best >= 0 {
			return cs[best].Node.ID, nil
		}
	}
	return "", full(cs, n)
}

// prefers reports whether a is the better of two nodes that will do.
func (n Need) prefers(a, b Candidate) bool {
	if n.Machine != "" && (a.Machine == n.Machine) != (b.Machine == n.Machine) {
		return a.Machine == n.Machine
	}
	return free(a) > free(b)
}

func free(c Candidate) int64 { return c.Node.Capacity.Memory - c.Used.Memory }

func fits(c Candidate, s model.Shape) bool {
	return c.Used.VCPUs+s.VCPUs <= c.Node.Capacity.VCPUs &&
		c.Used.Memory+s.Memory <= c.Node.Capacity.Memory &&
		c.Used.Disk+s.Disk <= c.Node.Capacity.Disk
}

// checkEver refuses what no node could take even when empty.
func checkEver(cs []Candidate, n Need) error {
	var here, answers, drivers, memory bool
	var disk int64 // the largest that any of them takes
	for _, c := range cs {
		if c.Node.Region != n.Region {
			continue
		}
		here = true
		answers = answers || !c.Silent
		if !slices.Contains(n.Drivers, c.Node.Driver) {
			continue
		}
		drivers = true
		memory = memory || (n.Shape.Memory <= c.Node.Capacity.Memory && n.Shape.VCPUs <= c.Node.Capacity.VCPUs)
		disk = max(disk, c.Node.Capacity.Disk/DiskOvercommit)
	}
	switch {
	case !here:
		return errs.New(errs.Unavailable, "region %s has no node", n.Region).WithHint("start one with: billet up, or: billet node")
	case !drivers:
		return errs.New(errs.Unsupported, "no node has a driver of %v", n.Drivers).WithHint("see: billet node ls, billet tier ls")
	case !memory:
		return errs.New(errs.Invalid, "%d vCPUs and %s of memory are more than any node has", n.Shape.VCPUs, model.Size(n.Shape.Memory)).WithHint("choose a smaller tier; see: billet tier ls")
	case n.Shape.Disk > disk:
		// What a node offers is more than it has; one disk must fit what is there.
		return errs.New(errs.Invalid, "a disk of %s is larger than any node takes: one disk may be a quarter of the disk that its node offers, here %s",
			model.Size(n.Shape.Disk), model.Size(disk)).
			WithHint("choose a smaller disk, or raise node.capacity.disk in a node's configuration; see: billet node ls")
	case !answers: // last: what can never be is not worth waiting for
		return errs.New(errs.Unavailable, "no node answers in region %s", n.Region).WithHint("see: billet node ls")
	}
	return nil
}

// full says what was short on the node that came closest: the one with the
// most free memory.
func full(cs []Candidate, n Need) error {
	var c *Candidate
	for i := range cs {
		fit := !cs[i].Silent && cs[i].Node.Region == n.Region && slices.Contains(n.Drivers, cs[i].Node.Driver)
		if fit && (c == nil || free(cs[i]) > free(*c)) {
			c = &cs[i]
		}
	}
	if c == nil {
		return errs.New(errs.Unavailable, "no node with a driver of %v answers", n.Drivers).WithHint("see: billet node ls")
	}
	limit := func(what string, used, have, want any) error {
		return errs.New(errs.Exhausted, "no node has room: node %s has %v of %v of %s charged, and %v more are asked", c.Node.Name, used, have, what, want).
			WithHint("stop a workspace, or choose a smaller tier; see: billet ws ls")
	}
	s := n.Shape
	switch {
	case c.Used.Memory+s.Memory > c.Node.Capacity.Memory:
		return limit("memory", model.Size(c.Used.Memory), model.Size(c.Node.Capacity.Memory), model.Size(s.Memory))
	case c.Used.VCPUs+s.VCPUs > c.Node.Capacity.VCPUs:
		return limit("the vCPUs", c.Used.VCPUs, c.Node.Capacity.VCPUs, s.VCPUs)
	default:
		return limit("disk", model.Size(c.Used.Disk), model.Size(c.Node.Capacity.Disk), model.Size(s.Disk))
	}
}
