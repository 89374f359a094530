package testenv

import (
	"testing"
	"time"
)

// awaitPause is how often Await looks.
const awaitPause = 10 * time.Millisecond

// Await calls check until it returns nil. When that takes longer than most, the
// test fails at once with check's last error. It is for what other processes
// do, which no channel of the test's can tell; most is what only a broken
// build exceeds.
func Await(t testing.TB, most time.Duration, check func() error) {
	t.Helper()
	for end := time.Now().Add(most); ; time.Sleep(awaitPause) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("testenv: still after %s: %v", most, err)
		}
	}
}
