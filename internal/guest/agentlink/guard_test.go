package agentlink

import (
	"errors"
	"testing"
)

// FuzzGuard holds the guard to judging a byte stream alike however it is cut.
func FuzzGuard(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 'h', 'i', 0, 1, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0}, uint8(3))
	f.Add([]byte{0, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0}, uint8(1))
	f.Add([]byte("GET / HTTP/1.1\r\n"), uint8(7))
	f.Fuzz(func(t *testing.T, data []byte, step uint8) {
		whole := newGuard(nil).check(data)
		pieces := newGuard(nil)
		var err error
		for n := int(step)%20 + 1; len(data) > 0 && err == nil; {
			n = min(n, len(data))
			err = pieces.check(data[:n])
			data = data[n:]
		}
		if !errors.Is(err, whole) {
			t.Errorf("in pieces of %d: %v, as a whole: %v", step, err, whole)
		}
	})
}
