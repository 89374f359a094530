package node

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/billethq/billet/internal/driver"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/failpoint"
	"github.com/billethq/billet/internal/guest"
	"github.com/billethq/billet/internal/model"
)

const (
	// loadTimeout bounds one try at fetching a memory image. A store that
	// stalls for longer leaves the instance starting, to be tried again.
	loadTimeout = 2 * time.Minute
	// greetTimeout bounds what a guest does after a restore, its hooks included
	// (package resume bounds those by 20 s), before people are let in anyway.
	greetTimeout = 25 * time.Second
	// maxSkew is how wrong the clock of a restored guest may be.
	maxSkew = 50 * time.Millisecond
	// maxAgentAnswer bounds what is read of a guest's answer.
	maxAgentAnswer = 256 << 10
	// maxFound bounds what is reported of a guest's words.
	maxFound = 512
)

// wake starts the guest from the memory of its snapshot, where there is one and
// it can be, else cold. how says which, and why.
func (s *supervisor) wake(ctx context.Context, spec driver.Spec) (how string, err error) {
	if s.desired().Memory == "" {
		return "cold", s.boot(ctx, spec)
	}
	why, err := s.whyCold(ctx)
	if err != nil {
		return "", err
	}
	if why == "" {
		if how, why, err = s.restore(ctx, spec); err != nil || why == "" {
			return how, err
		}
		s.log.Warn("not started from memory", "why", why)
		if err := s.note(func() { s.rec.Cold = why }); err != nil {
			return "", err
		}
	}
	return "cold: " + why, s.boot(ctx, spec)
}

// boot starts the guest from nothing, with the agent of this release.
func (s *supervisor) boot(ctx context.Context, spec driver.Spec) error {
	if p := s.takeEarly(spec); p != nil {
		return p.Start(ctx)
	}
	if err := s.placeGuest(s.node.cfg.GuestBinary); err != nil {
		return err
	}
	return s.node.cfg.Driver.Start(ctx, spec)
}

// placeGuest makes a file the instance's guest agent, unless a guest may run
// that has one already.
func (s *supervisor) placeGuest(from string) error {
	if err := os.Remove(s.guestBinary()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errs.Wrap(errs.Internal, err, "replace the instance's guest agent")
	}
	return errs.Wrap(errs.Internal, os.Link(from, s.guestBinary()), "place the instance's guest agent")
}

// whyCold says why the memory is of no use (any more).
func (s *supervisor) whyCold(ctx context.Context) (string, error) {
	s.mu.Lock()
	cold, woken, lost := s.rec.Cold, s.rec.Woken, s.rec.Lost
	s.mu.Unlock()
	if _, ok := s.hibernator(); !ok {
		return fmt.Sprintf("driver %s takes no memory", s.node.cfg.Driver.Name()), nil
	}
	switch {
	case cold != "":
		return cold, nil
	case lost > 0:
		return "the volume process was lost", nil
	case woken:
		// A guest may have run from that memory, and written.
		if clean, err := s.vol.Seal(ctx); err != nil || !clean {
			return "an earlier start has changed the disk", err
		}
	}
	return "", nil
}

// restore starts the guest from memory. why says why that cannot be; an error,
// that it may be another time.
func (s *supervisor) restore(ctx context.Context, spec driver.Spec) (how, why string, err error) {
	h, _ := s.hibernator()
	if err := freshDir(s.memoryDir()); err != nil {
		return "", "", err
	}
	defer os.RemoveAll(s.memoryDir()) // what is still read is open
	loading, cancel := context.WithTimeoutCause(ctx, loadTimeout, errs.New(errs.Unavailable, "the object store has not given the memory within %v", loadTimeout))
	defer cancel()
	loaded, err := s.vol.LoadMemory(loading, s.desired().Memory, s.memoryDir(), s.node.cfg.Machine)
	switch {
	case errs.Is(err, errs.Unsupported) || errors.Is(err, ErrDamaged):
		return "", err.Error(), nil
	case err != nil && loading.Err() != nil && ctx.Err() == nil:
		return "", "", context.Cause(loading)
	case err != nil:
		return "", "", err
	}
	failpoint.Reach(failpoint.ResumeLoaded)
	if err := s.note(func() { s.rec.Woken, s.rec.Restored = true, true }); err != nil {
		return "", "", err
	}
	s.reach(phaseMemory, model.StateStarting)
	// The agent whose memory it is, not the present release's.
	agent := filepath.Join(s.memoryDir(), guestFile)
	if err := os.Chmod(agent, 0o755); err != nil {
		return "", "the memory image has no guest agent: " + err.Error(), nil
	}
	if err := s.placeGuest(agent); err != nil {
		return "", "", err
	}
	if err := h.Restore(ctx, spec, s.memoryDir()); err != nil {
		if ctx.Err() != nil {
			return "", "", err
		}
		why := "the driver could not restore it: " + err.Error()
		if err := s.node.cfg.Driver.Delete(ctx, s.ref()); err != nil {
			return "", "", err
		}
		err := s.note(func() { s.rec.Restored = false })
		return "", why, errors.Join(err, os.MkdirAll(s.ref().Dir, 0o700))
	}
	failpoint.Reach(failpoint.ResumeRestored)
	return fmt.Sprintf("from memory taken at %s", loaded.Taken.UTC().Format(time.RFC3339)), "", nil
}

// greeting is the guest's own part of a restore, before anybody attaches.
type greeting struct {
	stop context.CancelFunc
	work sync.WaitGroup
}

func (g *greeting) end() {
	if g.stop != nil {
		g.stop()
	}
	g.work.Wait()
}

// greet tells a restored guest what has become of it, and found what it has to
// say: nothing, of one that was not restored just now.
func (s *supervisor) greet(ctx context.Context, g *greeting, found chan<- string) {
	s.mu.Lock()
	restored := s.rec.Restored
	s.mu.Unlock()
	if !restored || s.lastPhase() == phaseAttached {
		found <- ""
		return
	}
	ctx, g.stop = context.WithTimeout(ctx, greetTimeout)
	g.work.Go(func() { found <- s.resumed(ctx) })
}

// resumed has the guest do what a restore takes, and verifies it.
func (s *supervisor) resumed(ctx context.Context) string {
	d := s.desired()
	in := guest.Resumed{Epoch: string(d.ID), Hostname: d.Name}
	if d.Fork {
		sum := sha256.Sum256([]byte("billet machine id\x00" + string(d.Subject)))
		in.MachineID = hex.EncodeToString(sum[:16])
	}
	report, err := s.askResumed(ctx, in)
	if err != nil {
		s.log.Warn("restored guest does not answer for itself", "err", err)
		return "resume not verified: " + err.Error()
	}
	return s.judgeResume(report, s.node.cfg.Clock.Now())
}

func (s *supervisor) askResumed(ctx context.Context, in guest.Resumed) (out guest.ResumeReport, err error) {
	res, err := s.callAgent(ctx, guest.ResumedPath, in)
	if err != nil {
		return out, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return out, errs.New(errs.Internal, "the guest answers %s", res.Status)
	}
	err = json.NewDecoder(io.LimitReader(res.Body, maxAgentAnswer)).Decode(&out)
	return out, errs.Wrap(errs.Internal, err, "the guest's answer")
}

// judgeResume says what is worth knowing of a guest's report, which is the
// guest's word. now is when it came.
func (s *supervisor) judgeResume(r guest.ResumeReport, now time.Time) string {
	skew := now.Sub(r.Now)
	sum := sha256.Sum256([]byte(r.Random))
	s.log.Info("guest resumed", "skew", skew, "random", hex.EncodeToString(sum[:4]), "machine_id", bounded(r.MachineID, 32), "hooks", len(r.Hooks), "errors", len(r.Errors))
	found := []string{fmt.Sprintf("clock right to %v", skew.Abs().Round(time.Millisecond))}
	if skew.Abs() > maxSkew {
		found[0] = fmt.Sprintf("its clock is wrong by %v", skew.Round(time.Millisecond))
	}
	for _, h := range r.Hooks {
		if h.Code != 0 {
			found = append(found, fmt.Sprintf("hook %s ended with %d", bounded(h.Name, 64), h.Code))
		}
	}
	for _, e := range r.Errors {
		found = append(found, bounded(e, 128))
	}
	return bounded(strings.Join(found, "; "), maxFound)
}

// bounded limits a guest's words, and makes text of them.
func bounded(s string, n int) string {
	return strings.ToValidUTF8(s[:min(len(s), n)], "?")
}

// callAgent posts to the guest's agent. The guest is untrusted: the caller
// bounds time and answer.
func (s *supervisor) callAgent(ctx context.Context, path string, body any) (*http.Response, error) {
	s.mu.Lock()
	link := s.link
	s.mu.Unlock()
	if link == nil {
		return nil, errs.New(errs.Unavailable, "there is no link to the guest")
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://guest"+path, bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		DialContext:            func(ctx context.Context, _, _ string) (net.Conn, error) { return link.Open(ctx) },
		DisableKeepAlives:      true,
		MaxResponseHeaderBytes: maxAgentAnswer,
	}
	return transport.RoundTrip(req)
}
