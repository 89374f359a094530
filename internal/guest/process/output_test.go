package process

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/billethq/billet/internal/guest"
	pb "github.com/billethq/billet/internal/guest/processpb"
)

// record is what a log must keep, whatever the cuts: each byte and its channel.
type record struct{ data, channels []byte }

func (r *record) add(c channel, p []byte) {
	r.data = append(r.data, p...)
	r.channels = append(r.channels, bytes.Repeat([]byte{byte(c)}, len(p))...)
}

// read takes chunks until the end.
func read(t *testing.T, o *output, r *reader, limit int) (all record) {
	t.Helper()
	for {
		c, err := o.next(t.Context(), r, limit)
		if err != nil {
			t.Fatal(err)
		}
		if c.end != nil {
			return all
		}
		all.add(c.channel, c.data)
		o.sent(r, false)
	}
}

func TestOutput_ReadersGetEveryByteInOrder(t *testing.T) {
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			rnd, noise := rand.New(rand.NewPCG(seed, 0)), rand.NewChaCha8([32]byte{byte(seed)})
			o := newOutput(func() {})
			var readers []*reader
			for range 3 {
				r, err := o.attach("", 0)
				if err != nil {
					t.Fatal(err)
				}
				readers = append(readers, r)
			}
			var want record
			got := make([]record, len(readers))
			for i, r := range readers {
				limit := 1 + rnd.IntN(100_000)
				go func() { got[i] = read(t, o, r, limit) }()
			}
			// Several times what the log holds, in pieces of all sizes.
			for len(want.data) < 3*guest.ReplayBytes {
				p := make([]byte, 1+rnd.IntN(1<<rnd.IntN(18)))
				_, _ = noise.Read(p)
				c := channel(rnd.IntN(3))
				o.append(c, p)
				want.add(c, p)
			}
			o.finish(&pb.ProcessEvent_EndEvent{})
			synctest.Wait()
			for i := range got {
				if !bytes.Equal(want.data, got[i].data) || !bytes.Equal(want.channels, got[i].channels) {
					t.Errorf("seed %d: reader %d got %d bytes that differ from the %d written", seed, i, len(got[i].data), len(want.data))
				}
			}
		})
	}
}

func TestOutput_BoundsItsBookkeeping(t *testing.T) {
	o := newOutput(func() {})
	for i := range 4 * maxSegments {
		o.append(channel(i%2), []byte{byte(i)})
	}
	if len(o.segs) > maxSegments || o.end-o.start > maxSegments {
		t.Errorf("%d segments, %d bytes; want at most %d", len(o.segs), o.end-o.start, maxSegments)
	}
	r, err := o.attach("", o.start)
	if err != nil {
		t.Fatal(err)
	}
	o.finish(&pb.ProcessEvent_EndEvent{})
	got := read(t, o, r, 100)
	for i, b := range got.data {
		if at := int(o.start) + i; b != byte(at) || got.channels[i] != byte(at%2) {
			t.Fatalf("byte %d is %d of channel %d", at, b, got.channels[i])
		}
	}
}

func TestOutput_SlowReaderHoldsTheWriterBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutput(func() {})
		r, _ := o.attach("", 0)
		written := make(chan struct{})
		go func() { o.append(stdout, make([]byte, guest.ReplayBytes+1)); close(written) }()
		synctest.Wait()
		if o.end != guest.ReplayBytes {
			t.Fatalf("wrote %d bytes, want %d and then to wait", o.end, guest.ReplayBytes)
		}
		if _, err := o.next(t.Context(), r, 10); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if o.end != guest.ReplayBytes {
			t.Error("bytes that were not sent yet made room")
		}
		o.sent(r, false)
		<-written
	})
}

func TestOutput_NobodyListensAndNobodyWaits(t *testing.T) {
	o := newOutput(func() {})
	r, _ := o.attach("", 0)
	o.detach(r) // cannot resume
	data := make([]byte, 3*guest.ReplayBytes+5)
	for i := range data {
		data[i] = byte(i / 1000)
	}
	o.append(stdout, data)
	if _, err := o.attach("", 2*guest.ReplayBytes+4); !errors.Is(err, errGap) {
		t.Errorf("attach to dropped bytes: %v, want a gap", err)
	}
	if _, err := o.attach("", int64(len(data))+1); !errors.Is(err, errAhead) {
		t.Errorf("attach beyond the end: %v", err)
	}
	r, err := o.attach("", 2*guest.ReplayBytes+5)
	if err != nil {
		t.Fatal(err)
	}
	c, err := o.next(t.Context(), r, guest.ReplayBytes)
	if err != nil || !bytes.Equal(c.data, data[2*guest.ReplayBytes+5:][:len(c.data)]) {
		t.Errorf("the kept bytes are not the last: %v", err)
	}
}

func TestOutput_LostReaderIsHeldForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutput(func() {})
		r, _ := o.attach("me", 0)
		var wrote []byte
		write := func(n int) {
			p := bytes.Repeat([]byte{byte(len(wrote))}, n)
			wrote = append(wrote, p...)
			o.append(stdout, p)
		}
		write(guest.ReplayBytes)
		if _, err := o.next(t.Context(), r, guest.ReplayBytes); err != nil {
			t.Fatal(err)
		}
		o.sent(r, false) // into a socket; who knows what arrived
		o.detach(r)
		blocked := make(chan struct{})
		go func() { write(10); close(blocked) }()
		time.Sleep(guest.ResumeWindow)
		synctest.Wait()
		select {
		case <-blocked:
			t.Fatal("bytes that a lost reader has not acknowledged were dropped")
		default:
		}
		// It comes back with what it really had.
		again, err := o.attach("me", 100)
		if err != nil {
			t.Fatal(err)
		}
		<-blocked // 100 bytes of room
		if _, err := o.next(t.Context(), r, 1); !errors.Is(err, errReplaced) {
			t.Errorf("the lost stream goes on beside the new one: %v", err)
		}
		c, err := o.next(t.Context(), again, 50)
		if err != nil || !bytes.Equal(c.data, wrote[100:150]) {
			t.Errorf("resumed with %d bytes, %v", len(c.data), err)
		}
		// Only acknowledgements make room, and only of what was sent.
		o.ack("me", 1<<40, false)
		if again.kept != 150 {
			t.Errorf("kept from %d after an impossible acknowledgement, want 150", again.kept)
		}
		o.detach(again)
		free := make(chan struct{})
		go func() { write(2 * guest.ReplayBytes); close(free) }()
		time.Sleep(guest.ResumeWindow + holdMargin + time.Second)
		<-free // gone for good: the process goes on
	})
}

func TestOutput_EndIsSeenOnlyByWhoSaysSo(t *testing.T) {
	seen := 0
	o := newOutput(func() { seen++ })
	mine, _ := o.attach("me", 0)
	other, _ := o.attach("", 0)
	o.finish(&pb.ProcessEvent_EndEvent{})
	for _, r := range []*reader{mine, other} {
		if c, err := o.next(context.Background(), r, 1); err != nil || c.end == nil {
			t.Fatalf("no end: %v", err)
		}
	}
	o.sent(mine, true)
	o.ack("me", 0, false)
	if seen != 0 {
		t.Error("seen by a reader that has not acknowledged it")
	}
	o.ack("me", 0, true)
	if seen != 1 {
		t.Error("not seen after its acknowledgement")
	}
	o.sent(other, true)
	if seen != 2 {
		t.Error("not seen by a client of the plain contract")
	}
}

func TestOutput_BoundsItsReaders(t *testing.T) {
	o := newOutput(func() {})
	for range maxReaders {
		if _, err := o.attach("", 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := o.attach("", 0); !errors.Is(err, errReaders) {
		t.Errorf("one reader too many: %v", err)
	}
}
