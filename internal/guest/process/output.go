package process

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/billethq/billet/internal/guest"
	pb "github.com/billethq/billet/internal/guest/processpb"
)

// channel tells which of a process's outputs bytes came from.
type channel uint8

const (
	stdout channel = iota
	stderr
	terminal
)

const (
	// minBuffer is the first size of a log's buffer, which doubles up to
	// guest.ReplayBytes: most processes say little.
	minBuffer = 4 << 10
	// maxSegments bounds the bookkeeping of a process that alternates between
	// its outputs byte by byte.
	maxSegments = 8 << 10
	// maxReaders bounds the clients attached to one process.
	maxReaders = 32
	// holdMargin is added to guest.ResumeWindow, since the client may notice
	// later than the agent that a stream is lost.
	holdMargin = 15 * time.Second
)

var (
	errGap      = errors.New("output is gone")
	errAhead    = errors.New("offset is beyond the output")
	errReplaced = errors.New("the reader has attached again")
	errReaders  = errors.New("too many readers")
)

// output is the log of what a process wrote: a ring of bytes with absolute
// offsets. Writers wait while it is full of bytes that a reader still needs;
// while there is no reader the oldest bytes make room.
//
// invariant: start <= end, end-start <= len(buf), segs covers [start,end)
// without empty segments.
type output struct {
	mu         sync.Mutex
	buf        []byte // byte o is at o % len(buf)
	start, end int64
	segs       []segment
	readers    map[*reader]struct{}
	closed     bool // nothing will be appended
	final      *pb.ProcessEvent_EndEvent
	left       time.Time     // when the last reader was lost or left; zero: never
	onSeen     func()        // called, unlocked, when a client has certainly had the end
	changed    chan struct{} // closed at the next change; nil when nobody waits
}

// segment is a run of bytes of one channel that ends at offset until.
type segment struct {
	channel channel
	until   int64
}

// reader is a client's position in an output.
type reader struct {
	name    string // "" cannot resume
	pos     int64  // next byte to send
	kept    int64  // bytes from here on must not be dropped
	lost    *time.Timer
	removed bool
}

// chunk is what a reader gets next: bytes of one channel, or the end.
type chunk struct {
	channel channel
	data    []byte
	end     *pb.ProcessEvent_EndEvent
}

func newOutput(onSeen func()) *output {
	return &output{readers: make(map[*reader]struct{}), onSeen: onSeen}
}

// append adds p, waiting for room; see output. After discard it drops p.
func (o *output) append(c channel, p []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(p) > 0 && !o.closed {
		n := o.room(c, len(p))
		if n == 0 {
			o.wait(context.Background())
			continue
		}
		for done := 0; done < n; {
			done += copy(o.buf[(o.end+int64(done))%int64(len(o.buf)):], p[done:n])
		}
		o.end += int64(n)
		if k := len(o.segs); k > 0 && o.segs[k-1].channel == c {
			o.segs[k-1].until = o.end
		} else {
			o.segs = append(o.segs, segment{c, o.end})
		}
		p = p[n:]
		o.wake()
	}
}

// room makes room for up to want bytes of c and returns how many fit.
func (o *output) room(c channel, want int) int {
	want = min(want, guest.ReplayBytes)
	o.grow(want)
	if k := len(o.segs); k >= maxSegments && o.segs[k-1].channel != c {
		if !o.drop(o.segs[0].until) {
			return 0
		}
	}
	if need := o.end + int64(want) - int64(len(o.buf)); need > o.start {
		o.drop(need)
	}
	return min(want, len(o.buf)-int(o.end-o.start))
}

// drop gives up bytes before offset to, as far as readers allow, and reports
// whether that was all.
func (o *output) drop(to int64) bool {
	floor := min(to, o.end)
	for r := range o.readers {
		floor = min(floor, r.kept)
	}
	o.start = max(o.start, floor)
	i := 0
	for i < len(o.segs) && o.segs[i].until <= o.start {
		i++
	}
	o.segs = o.segs[i:]
	return floor >= to
}

// grow enlarges the buffer for want more bytes, up to guest.ReplayBytes.
func (o *output) grow(want int) {
	size := max(len(o.buf), minBuffer)
	for size < guest.ReplayBytes && int64(size) < o.end-o.start+int64(want) {
		size *= 2
	}
	if size == len(o.buf) {
		return
	}
	next := make([]byte, size)
	for at := o.start; at < o.end; {
		run := o.at(at, o.end)
		for done := 0; done < len(run); {
			done += copy(next[(at+int64(done))%int64(size):], run[done:])
		}
		at += int64(len(run))
	}
	o.buf = next
}

// at returns the longest run of the buffer that starts at from, up to until.
func (o *output) at(from, until int64) []byte {
	i := from % int64(len(o.buf))
	return o.buf[i:min(int64(len(o.buf)), i+until-from)]
}

// attach adds a reader at offset from, or at the end if from is negative. One
// with the name of another replaces it: that is how a lost stream is resumed.
func (o *output) attach(name string, from int64) (*reader, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if from < 0 {
		from = o.end
	}
	if from < o.start {
		return nil, fmt.Errorf("%w: %d bytes from offset %d", errGap, o.start-from, from)
	}
	if from > o.end {
		return nil, fmt.Errorf("%w: %d of %d", errAhead, from, o.end)
	}
	for r := range o.readers {
		if name != "" && r.name == name {
			o.remove(r)
		}
	}
	if len(o.readers) >= maxReaders {
		return nil, errReaders
	}
	r := &reader{name: name, pos: from, kept: from}
	o.readers[r] = struct{}{}
	o.wake()
	return r, nil
}

// detach ends a reader's stream. A named one keeps its bytes for a while.
func (o *output) detach(r *reader) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if r.removed {
		return
	}
	if r.name == "" {
		o.remove(r)
		return
	}
	defer o.noteLeft()
	r.lost = time.AfterFunc(guest.ResumeWindow+holdMargin, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.remove(r)
	})
}

func (o *output) remove(r *reader) {
	if r.lost != nil {
		r.lost.Stop()
	}
	r.removed = true
	delete(o.readers, r)
	if r.lost == nil {
		o.noteLeft()
	}
	o.wake()
}

// noteLeft notes the time when nobody follows any more.
func (o *output) noteLeft() {
	for r := range o.readers {
		if r.lost == nil {
			return
		}
	}
	o.left = time.Now()
}

// unfollowed reports how much there is, since when no stream follows it, and
// whether something is held for one that was lost; ok is false while one does.
func (o *output) unfollowed() (end int64, since time.Time, held, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for r := range o.readers {
		if r.lost == nil {
			return 0, time.Time{}, false, false
		}
	}
	return o.end, o.left, len(o.readers) > 0, o.final == nil
}

// leave gives up the reader called name: it will not come back.
func (o *output) leave(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for r := range o.readers {
		if r.name == name {
			o.remove(r)
		}
	}
}

// next returns the reader's next chunk of at most limit bytes, waiting for one.
func (o *output) next(ctx context.Context, r *reader, limit int) (chunk, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		switch {
		case r.removed:
			return chunk{}, errReplaced
		case r.pos < o.start: // only after discard
			return chunk{}, errGap
		case r.pos < o.end:
			return o.take(r, limit), nil
		case o.final != nil:
			return chunk{end: o.final}, nil
		}
		if err := o.wait(ctx); err != nil {
			return chunk{}, err
		}
	}
}

func (o *output) take(r *reader, limit int) chunk {
	seg := o.segs[0]
	for i := 0; seg.until <= r.pos; i++ {
		seg = o.segs[i]
	}
	run := o.at(r.pos, min(seg.until, r.pos+int64(limit)))
	r.pos += int64(len(run))
	return chunk{channel: seg.channel, data: append([]byte(nil), run...)}
}

// sent tells that everything next returned to r has been written to its stream.
func (o *output) sent(r *reader, end bool) {
	o.mu.Lock()
	seen := false
	if r.name == "" {
		r.kept = r.pos
		seen = end
		o.wake()
	}
	o.mu.Unlock()
	if seen {
		o.onSeen()
	}
}

// ack tells that the reader called name has received the bytes before offset,
// and the end event if end. Acknowledging again, or less, changes nothing.
func (o *output) ack(name string, offset int64, end bool) {
	o.mu.Lock()
	seen := false
	for r := range o.readers {
		if r.name != name {
			continue
		}
		r.kept = max(r.kept, min(offset, r.pos))
		if seen = end && o.final != nil; seen {
			o.remove(r)
		}
	}
	o.wake()
	o.mu.Unlock()
	if seen {
		o.onSeen()
	}
}

// finish says how the process ended; what is appended later is dropped.
func (o *output) finish(end *pb.ProcessEvent_EndEvent) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed, o.final = true, end
	o.wake()
}

// size is how much memory the bytes hold.
func (o *output) size() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.buf)
}

// discard gives up the bytes; the end event stays.
func (o *output) discard() (freed int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	freed = len(o.buf)
	o.start, o.segs, o.buf = o.end, nil, nil
	o.wake()
	return freed
}

func (o *output) wake() {
	if o.changed != nil {
		close(o.changed)
		o.changed = nil
	}
}

// wait unlocks until the next change, or until ctx ends.
func (o *output) wait(ctx context.Context) error {
	if o.changed == nil {
		o.changed = make(chan struct{})
	}
	c := o.changed
	o.mu.Unlock()
	defer o.mu.Lock()
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
