package volume

import (
	"github.com/billethq/billet/internal/errs"
)

// join returns the flight of e, beginning one when there is none, with a
// reference that the caller releases. A flight that waits in a lower class
// moves up; one that runs is as fast as it gets.
func (f *Fetcher) join(e Entry, prio Priority) (*flight, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, errs.New(errs.Unavailable, "the volume is closed")
	}
	fl := f.flights[e]
	switch {
	case fl == nil:
		fl = f.begin(e, prio)
	case !fl.started && prio < fl.prio:
		f.joined.Add(1)
		fl.prio = prio // its place in the other queue is skipped
		f.enqueue(fl)
	default:
		f.joined.Add(1)
	}
	fl.refs++
	return fl, nil
}

// begin makes a flight; f.mu is held, as in all below that do not take it.
func (f *Fetcher) begin(e Entry, prio Priority) *flight {
	fl := &flight{entry: e, prio: prio, refs: 1, done: make(chan struct{})}
	f.flights[e] = fl
	f.enqueue(fl)
	return fl
}

func (f *Fetcher) enqueue(fl *flight) {
	c := &f.classes[fl.prio]
	if c.running < c.slots {
		f.start(fl)
		return
	}
	c.queue = append(c.queue, fl)
}

func (f *Fetcher) start(fl *flight) {
	fl.started = true
	prio := fl.prio
	f.classes[prio].running++
	f.running.Go(func() {
		f.fly(fl)
		f.land(fl, prio)
	})
}

// fly fetches the block, hands it to the readers, and then inserts it into the
// cache: readers do not wait for that, and until it is there the flight can
// still be joined.
func (f *Fetcher) fly(fl *flight) {
	fl.buf = f.buffers.Get().(*[]byte)
	if f.cache != nil && f.cache.read(fl.entry, *fl.buf, 0) {
		close(fl.done) // inserted since its reader looked
		return
	}
	fl.err = f.store.GetBlock(f.ctx, fl.entry, *fl.buf)
	if fl.err != nil {
		f.failed.Add(1)
		close(fl.done)
		return
	}
	f.fetched.Add(1)
	close(fl.done)
	if f.cache != nil {
		f.cache.Put(fl.entry, *fl.buf)
	}
}

// land ends a flight and starts the next of its class.
func (f *Fetcher) land(fl *flight, prio Priority) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.flights, fl.entry)
	f.drop(fl)
	c := &f.classes[prio]
	c.running--
	for len(c.queue) > 0 && c.running < c.slots {
		next := c.queue[0]
		c.queue[0] = nil
		c.queue = c.queue[1:]
		switch {
		case next.started || next.prio != prio: // moved up meanwhile
		case next.refs == 1 && prio != ReadAhead: // every reader has gone
			f.refuse(next)
		default:
			f.start(next)
		}
	}
}

// refuse ends a flight that has not begun.
func (f *Fetcher) refuse(fl *flight) {
	fl.started = true
	fl.err = errs.New(errs.Unavailable, "the fetch was given up")
	close(fl.done)
	delete(f.flights, fl.entry)
	f.drop(fl)
}

func (f *Fetcher) release(fl *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drop(fl)
}

func (f *Fetcher) drop(fl *flight) {
	fl.refs--
	if fl.refs == 0 && fl.buf != nil {
		f.buffers.Put(fl.buf)
		fl.buf = nil
	}
}
