package process

import (
	"errors"
	"strconv"
	"sync"
	"time"
)

const (
	// maxProcesses bounds the processes tracked at once, each with up to
	// guest.ReplayBytes of output.
	maxProcesses = 1024
	// maxEnded and endedFor bound the processes remembered after their end, for
	// clients that have not had it.
	maxEnded = 1000
	endedFor = 10 * time.Minute
	// maxEndedBytes bounds the output kept of them, all together; the oldest
	// gives up its own first.
	maxEndedBytes = 16 << 20
)

var (
	errFull   = errors.New("too many processes: at most " + itoa(maxProcesses))
	errEnding = errors.New("the guest is ending")
	errTag    = errors.New("a process with this tag has been started")
)

func itoa(n int) string { return strconv.Itoa(n) }

// table knows the processes that run and those that ended lately.
type table struct {
	mu      sync.Mutex
	now     func() time.Time
	tracked int // reserved and not released
	running map[uint32]*proc
	tags    map[string]*proc // the newest with each tag
	ended   []*proc          // oldest first
	bytes   int              // output kept by ended, at most maxEndedBytes
	closed  bool             // reserve refuses
}

func newTable(now func() time.Time) *table {
	return &table{now: now, running: make(map[uint32]*proc), tags: make(map[string]*proc)}
}

// reserve makes room for p and registers its tag, so that a second Start with
// it is noticed before the first has forked. If once, a used tag is errTag.
// release gives the room back; fail does, and forgets the tag.
func (t *table) reserve(p *proc, once bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expire()
	if once && p.tag != "" && t.tags[p.tag] != nil {
		return errTag
	}
	if t.closed {
		return errEnding
	}
	if t.tracked >= maxProcesses {
		return errFull
	}
	t.tracked++
	if p.tag != "" {
		t.tags[p.tag] = p
	}
	return nil
}

func (t *table) refuse() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
}

func (t *table) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tracked--
}

// fail undoes reserve for a process that could not be started.
func (t *table) fail(p *proc) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tracked--
	t.forget(p)
	p.failed = true
	close(p.ready)
}

// add registers a process that has been spawned.
func (t *table) add(p *proc) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running[p.pid] = p
	close(p.ready)
}

// end moves p to the ended ones.
func (t *table) end(p *proc) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running[p.pid] == p {
		delete(t.running, p.pid)
	}
	p.endedAt = t.now()
	t.ended = append(t.ended, p)
	t.bytes += p.out.size()
	t.expire()
	for i := 0; t.bytes > maxEndedBytes; i++ {
		t.bytes -= t.ended[i].out.discard()
	}
}

// saw says that a client has had p's end: its output is not needed again.
func (t *table) saw(p *proc) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p.seen = true
	if n := p.out.discard(); !p.endedAt.IsZero() {
		t.bytes -= n
	}
}

// expire forgets what ended too long ago, or is too much.
func (t *table) expire() {
	oldest := t.now().Add(-endedFor)
	i := 0
	for i < len(t.ended) && (len(t.ended)-i > maxEnded || t.ended[i].endedAt.Before(oldest)) {
		t.bytes -= t.ended[i].out.discard()
		t.forget(t.ended[i])
		i++
	}
	t.ended = t.ended[i:]
}

func (t *table) forget(p *proc) {
	if t.tags[p.tag] == p {
		delete(t.tags, p.tag)
	}
}

// byTag returns the newest process with tag, running or ended, or nil. It may
// not be ready.
func (t *table) byTag(tag string) *proc {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expire()
	return t.tags[tag]
}

// byPID returns the running process with pid, or the newest that ended, or nil.
func (t *table) byPID(pid uint32) *proc {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expire()
	if p := t.running[pid]; p != nil {
		return p
	}
	for i := len(t.ended) - 1; i >= 0; i-- {
		if t.ended[i].pid == pid {
			return t.ended[i]
		}
	}
	return nil
}

// wasSeen reports whether p has ended and a client has had its end.
func (t *table) wasSeen(p *proc) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return p.seen
}

// list returns the running processes, in no order.
func (t *table) list() []*proc {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]*proc, 0, len(t.running))
	for _, p := range t.running {
		all = append(all, p)
	}
	return all
}
