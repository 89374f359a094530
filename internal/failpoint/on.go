//go:build failpoint

package failpoint

import (
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Reach stops here while a test has armed s; see the package comment. The wait
// has no deadline: the test that armed the step ends it, or kills the process.
func Reach(s Step) {
	dir := os.Getenv("BILLET_FAILPOINTS")
	if dir == "" {
		return
	}
	armed := filepath.Join(dir, string(s))
	if _, err := os.Stat(armed); err != nil {
		return
	}
	hit := armed + ".hit"
	_ = os.WriteFile(hit+".tmp", []byte(strconv.Itoa(os.Getpid())), 0o644)
	_ = os.Rename(hit+".tmp", hit)
	for {
		if _, err := os.Stat(armed); err != nil {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
}
