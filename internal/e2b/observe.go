package e2b

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
)

const (
	// measureWait bounds the question to a guest: a list of metrics must not
	// wait for one that hangs.
	measureWait = 5 * time.Second
	// maxMeasured bounds what a guest may answer, and the guests of one request.
	maxMeasured  = 64 << 10
	maxSandboxes = 100
	// maxLogs bounds the lines of one answer.
	maxLogs = 1000
)

// metric is one sample of the contract.
type metric struct {
	Timestamp     time.Time `json:"timestamp"`
	TimestampUnix int64     `json:"timestampUnix"`
	CPUCount      int       `json:"cpuCount"`
	CPUUsed       float64   `json:"cpuUsedPct"`
	MemTotal      uint64    `json:"memTotal"`
	MemUsed       uint64    `json:"memUsed"`
	MemCache      uint64    `json:"memCache"`
	DiskTotal     uint64    `json:"diskTotal"`
	DiskUsed      uint64    `json:"diskUsed"`
}

// metrics answers with the present sample: no history is kept. A sandbox that
// is paused uses nothing, and has none.
func (h *Handler) metrics(x *exchange) error {
	o, err := h.find(x)
	if err != nil {
		return err
	}
	samples := []metric{}
	if stateOf(o.Workspace) == stateRunning {
		m, err := h.measure(x, o)
		if err != nil {
			return err
		}
		if within(x.r, m.TimestampUnix) {
			samples = append(samples, m)
		}
	}
	answer(x.w, http.StatusOK, samples)
	return nil
}

// within reports whether a time is in the request's range.
func within(r *http.Request, unix int64) bool {
	start, err1 := strconv.ParseInt(r.URL.Query().Get("start"), 10, 64)
	end, err2 := strconv.ParseInt(r.URL.Query().Get("end"), 10, 64)
	return (err1 != nil || unix >= start) && (err2 != nil || unix <= end+1)
}

// metricsOfMany answers with the sample of each sandbox that is named and runs.
func (h *Handler) metricsOfMany(x *exchange) error {
	ids := strings.Split(x.r.URL.Query().Get("sandbox_ids"), ",")
	if len(ids) > maxSandboxes {
		return errs.New(errs.Invalid, "%d sandboxes; at most %d are allowed", len(ids), maxSandboxes)
	}
	out := map[string]metric{}
	for _, id := range ids {
		o, err := h.cfg.Lending.OnTerms(x.r.Context(), x.who, id)
		if err != nil || stateOf(o.Workspace) != stateRunning {
			continue
		}
		if m, err := h.measure(x, o); err == nil {
			out[id] = m
		}
	}
	answer(x.w, http.StatusOK, struct {
		Sandboxes map[string]metric `json:"sandboxes"`
	}{out})
	return nil
}

// measure asks the guest. What it says is data, and bounded.
func (h *Handler) measure(x *exchange, o api.OnTerms) (metric, error) {
	ctx, cancel := context.WithTimeout(x.r.Context(), measureWait)
	defer cancel()
	a, err := h.cfg.Service.Attach(ctx, x.who, string(o.Workspace.ID))
	if err != nil {
		return metric{}, err
	}
	t := target{o.Workspace.ID, agentPort}
	u := hostOf(t, a)
	u.Path = "/metrics"
	req, err := http.NewRequestWithContext(context.WithValue(ctx, wayKey{}, way{t, a}), http.MethodGet, u.String(), nil)
	if err != nil {
		return metric{}, errs.Wrap(errs.Internal, err, "make a request")
	}
	res, err := h.proxy.Transport.RoundTrip(req)
	if err != nil {
		return metric{}, errs.Wrap(errs.Unavailable, err, "ask the guest for its load")
	}
	defer res.Body.Close()
	var m struct {
		Time      int64   `json:"ts"`
		CPUs      int     `json:"cpu_count"`
		CPUUsed   float64 `json:"cpu_used_pct"`
		MemTotal  uint64  `json:"mem_total"`
		MemUsed   uint64  `json:"mem_used"`
		MemCache  uint64  `json:"mem_cache"`
		DiskUsed  uint64  `json:"disk_used"`
		DiskTotal uint64  `json:"disk_total"`
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, maxMeasured)).Decode(&m); err != nil || res.StatusCode != http.StatusOK {
		return metric{}, errs.New(errs.Unavailable, "the guest did not tell its load (%s)", res.Status)
	}
	return metric{
		Timestamp: time.Unix(m.Time, 0).UTC(), TimestampUnix: m.Time, CPUCount: m.CPUs, CPUUsed: m.CPUUsed,
		MemTotal: m.MemTotal, MemUsed: m.MemUsed, MemCache: m.MemCache, DiskTotal: m.DiskTotal, DiskUsed: m.DiskUsed,
	}, nil
}

// logLine is a line of the contract's newer form; Line is the older one's.
type logLine struct {
	Timestamp time.Time         `json:"timestamp"`
	Level     string            `json:"level"`
	Message   string            `json:"message"`
	Line      string            `json:"line"`
	Fields    map[string]string `json:"fields"`
}

// logs are the events of a sandbox: what was done to it and what became of it.
// What its commands print is their callers' and is not kept.
func (h *Handler) logs(x *exchange) error {
	if _, err := h.find(x); err != nil {
		return err
	}
	events, err := h.cfg.Service.Events(x.r.Context(), x.who, x.id(), 0, maxLogs)
	if err != nil {
		return err
	}
	lines := []logLine{}
	for _, e := range events {
		level := "info"
		if strings.HasSuffix(e.Kind, ".failed") {
			level = "error"
		}
		lines = append(lines, logLine{Timestamp: e.At, Level: level, Message: e.Kind, Line: fmt.Sprint(e.Kind, " ", e.Data), Fields: e.Data})
	}
	if x.r.URL.Query().Get("direction") == "backward" {
		slices.Reverse(lines)
	}
	answer(x.w, http.StatusOK, struct {
		Logs    []logLine `json:"logs"`
		Entries []logLine `json:"logEntries"`
	}{lines, lines})
	return nil
}
