package daemon

import (
	"fmt"
	"io"
)

// say prints one line of a daemon's story: a short word, then the facts.
func say(w io.Writer, what, format string, args ...any) {
	_, _ = fmt.Fprintf(w, "%-10s %s\n", what, fmt.Sprintf(format, args...))
}

func sayStop(w io.Writer) {
	say(w, "stop", "Ctrl-C or SIGTERM; sandboxes run on and the next start adopts them")
}
