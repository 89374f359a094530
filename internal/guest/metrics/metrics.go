// Package metrics is what a guest uses of its processors, memory and disk.
package metrics

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// maxFile bounds what is read of a file of procfs: many times what it has on
// the largest machines.
const maxFile = 1 << 20

// Config holds what a Service needs.
type Config struct {
	Root string           // "" is "/"; tests have another
	Now  func() time.Time // nil is time.Now
}

// Service serves the contract's /metrics and /envs. It is safe for concurrent
// use.
type Service struct {
	cfg Config

	mu   sync.Mutex
	last ticks // at the last request
}

// New returns a Service.
func New(c Config) *Service {
	if c.Root == "" {
		c.Root = "/"
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Service{cfg: c}
}

// Metrics are the contract's. Sizes are bytes but where a name says MiB.
type Metrics struct {
	Time        int64   `json:"ts"` // seconds since 1970
	CPUs        int     `json:"cpu_count"`
	CPUUsed     float64 `json:"cpu_used_pct"` // of all of them, since the last request or the start
	MemTotal    uint64  `json:"mem_total"`
	MemUsed     uint64  `json:"mem_used"`
	MemTotalMiB uint64  `json:"mem_total_mib"`
	MemUsedMiB  uint64  `json:"mem_used_mib"`
	MemCache    uint64  `json:"mem_cache"`
	DiskUsed    uint64  `json:"disk_used"`
	DiskTotal   uint64  `json:"disk_total"`
}

// Register adds the routes to mux.
func (s *Service) Register(mux *http.ServeMux) {
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		m, err := s.Metrics()
		if err != nil {
			answer(w, http.StatusInternalServerError, map[string]any{"code": http.StatusInternalServerError, "message": err.Error()})
			return
		}
		answer(w, http.StatusOK, m)
	})
	// The variables that every process is given beyond those of its own
	// request and its user: none.
	mux.HandleFunc("GET /envs", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]string{})
	})
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client is gone
}

// Metrics measures.
func (s *Service) Metrics() (Metrics, error) {
	m := Metrics{Time: s.cfg.Now().Unix(), CPUs: runtime.NumCPU()}
	stat, err := s.read("proc/stat")
	if err != nil {
		return m, err
	}
	m.CPUUsed = s.used(parseTicks(stat))
	info, err := s.read("proc/meminfo")
	if err != nil {
		return m, err
	}
	mem := parseMeminfo(info)
	m.MemTotal = mem["MemTotal"]
	m.MemUsed = m.MemTotal - min(m.MemTotal, mem["MemAvailable"])
	m.MemCache = mem["Cached"]
	m.MemTotalMiB, m.MemUsedMiB = m.MemTotal>>20, m.MemUsed>>20
	var fs unix.Statfs_t
	if err := unix.Statfs(s.cfg.Root, &fs); err != nil {
		return m, os.NewSyscallError("statfs", err)
	}
	m.DiskTotal = fs.Blocks * uint64(fs.Bsize)
	m.DiskUsed = (fs.Blocks - min(fs.Blocks, fs.Bfree)) * uint64(fs.Bsize)
	return m, nil
}

// used is the share of time, in percent, that was used since the last call.
func (s *Service) used(now ticks) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.last
	s.last = now
	if now.all <= last.all || now.idle < last.idle {
		return 0 // asked twice at once, or restored from before
	}
	all, idle := now.all-last.all, now.idle-last.idle
	return 100 * float64(all-min(all, idle)) / float64(all)
}

func (s *Service) read(name string) (string, error) {
	f, err := os.Open(filepath.Join(s.cfg.Root, name))
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile))
	return string(b), err
}

// ticks are times of all processors together.
type ticks struct{ all, idle uint64 }

// parseTicks reads the first line of proc(5)'s stat: user, nice, system, idle,
// iowait, irq, softirq and steal; what follows is part of the first two.
func parseTicks(stat string) (t ticks) {
	const fields, idle, iowait = 8, 3, 4
	line, _, _ := strings.Cut(stat, "\n")
	for i, f := range strings.Fields(strings.TrimPrefix(line, "cpu ")) {
		n, err := strconv.ParseUint(f, 10, 64)
		if err != nil || i == fields {
			break
		}
		t.all += n
		if i == idle || i == iowait {
			t.idle += n
		}
	}
	return t
}

// parseMeminfo reads the sizes in proc(5)'s meminfo, in bytes.
func parseMeminfo(info string) map[string]uint64 {
	sizes := make(map[string]uint64)
	for lines := bufio.NewScanner(strings.NewReader(info)); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ":")
		kib, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err == nil && kib < 1<<50 {
			sizes[name] = kib << 10
		}
	}
	return sizes
}
