package volume

import "sync"

const (
	// readAheadBlocks is how far beyond a sequential reader blocks are
	// fetched, after readAheadAfter steps from one block to the next.
	readAheadBlocks = 4
	readAheadAfter  = 2
	// trackedStreams is how many sequential readers are told apart.
	trackedStreams = 8
)

// streams finds sequential readers among the reads of a device.
type streams struct {
	mu    sync.Mutex
	clock uint64
	slots [trackedStreams]stream
}

type stream struct {
	last int64  // block read last
	hits int    // steps from one block to the next
	used uint64 // order of use
}

func (s *streams) init() {
	for i := range s.slots {
		s.slots[i].last = -2 // before every block
	}
}

// sequential notes a read of block index and reports whether a reader just
// stepped to it in sequence. Further reads of the same block report false.
func (s *streams) sequential(index int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock++
	oldest := &s.slots[0]
	for i := range s.slots {
		t := &s.slots[i]
		switch index {
		case t.last:
			t.used = s.clock
			return false
		case t.last + 1:
			t.last, t.used = index, s.clock
			t.hits++
			return t.hits >= readAheadAfter
		}
		if t.used < oldest.used {
			oldest = t
		}
	}
	*oldest = stream{last: index, used: s.clock}
	return false
}

// ahead begins to fetch the blocks after index that are not here.
func (f *Fetcher) ahead(m *Manifest, index int64) {
	for i := index + 1; i <= index+readAheadBlocks; i++ {
		e := m.Entry(i)
		if e.IsZero() || f.cache == nil || f.cache.Has(e) {
			continue // without a cache there is nowhere to keep it
		}
		f.mu.Lock()
		if !f.closed && f.flights[e] == nil && len(f.classes[ReadAhead].queue) < maxReadAheadQueue {
			f.readAhead.Add(1)
			f.begin(e, ReadAhead)
		}
		f.mu.Unlock()
	}
}
