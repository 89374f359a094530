package cli

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/billethq/billet/internal/clock"
)

// meterEvery is how often a meter redraws its line.
const meterEvery = 200 * time.Millisecond

// barWidth is how long a full bar is.
const barWidth = 24

// meter shows on a terminal how far a transfer is, on one line that it draws
// again. Where there is no terminal it shows nothing.
type meter struct {
	app  *app
	live bool

	mu    sync.Mutex
	what  string
	done  int64
	total int64 // 0: unknown
	began *clock.Stopwatch
	last  time.Duration
	drawn bool
}

func (a *app) meter() *meter {
	_, live := terminal(a.Err)
	return &meter{app: a, live: live, what: "copying", began: clock.Start()}
}

// set tells the state as a whole.
func (m *meter) set(what string, done, total int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	changed := what != m.what
	m.what, m.done, m.total = what, done, total
	m.draw(changed)
}

func (m *meter) add(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done += int64(n)
	m.draw(false)
}

// draw is called with the lock held.
func (m *meter) draw(now bool) {
	at := m.began.Elapsed()
	if !m.live || !now && m.drawn && at-m.last < meterEvery {
		return
	}
	m.last, m.drawn = at, true
	fmt.Fprintf(m.app.Err, "\r\x1b[K%7s  %s", seconds(at), m.text())
}

func (m *meter) text() string {
	if m.total <= 0 {
		if m.done == 0 {
			return m.what
		}
		return m.what + "  " + bytesText(m.done)
	}
	full := int(min(m.done, m.total) * barWidth / m.total)
	bar := strings.Repeat("=", full) + strings.Repeat(" ", barWidth-full)
	return fmt.Sprintf("%-13s [%s] %s of %s", m.what, bar, bytesText(m.done), bytesText(m.total))
}

// end draws the last state and leaves the line.
func (m *meter) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.live && m.drawn {
		m.draw(true)
		fmt.Fprintln(m.app.Err)
		m.live = false
	}
}

// reader and writer count what passes.
func (m *meter) reader(r io.Reader) io.Reader { return io.TeeReader(r, countWriter{m}) }
func (m *meter) writer(w io.Writer) io.Writer { return io.MultiWriter(w, countWriter{m}) }

type countWriter struct{ m *meter }

func (c countWriter) Write(p []byte) (int, error) {
	c.m.add(len(p))
	return len(p), nil
}
