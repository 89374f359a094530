package image

import (
	"io"

	"github.com/billethq/billet/internal/api"
)

// reportStep is how many bytes pass between two reports: a few hundred lines
// for a large image.
const reportStep = 4 << 20

// reporter tells how far a build is. One goroutine at a time uses it.
type reporter struct {
	send func(api.ImageProgress)
	now  api.ImageProgress
	last int64
}

func newReporter(send func(api.ImageProgress)) *reporter {
	if send == nil {
		send = func(api.ImageProgress) {}
	}
	return &reporter{send: send}
}

// begin enters a stage of total bytes; 0: unknown.
func (r *reporter) begin(stage string, total int64) {
	r.now = api.ImageProgress{Stage: stage, Total: total}
	r.last = 0
	r.send(r.now)
}

// at says how many bytes of the stage are done.
func (r *reporter) at(done int64) {
	r.now.Done = done
	if done-r.last >= reportStep || (done != r.last && done == r.now.Total) {
		r.last = done
		r.send(r.now)
	}
}

// say passes on one line for people.
func (r *reporter) say(message string) {
	p := r.now
	p.Message = message
	r.send(p)
}

// meter counts what is read as done.
type meter struct {
	r      io.Reader
	report *reporter
	done   *int64
}

func (m meter) Read(p []byte) (int, error) {
	n, err := m.r.Read(p)
	*m.done += int64(n)
	m.report.at(*m.done)
	return n, err
}
