package metrics_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/billethq/billet/internal/guest/metrics"
)

func write(t *testing.T, root, name, text string) {
	t.Helper()
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestMetrics(t *testing.T) {
	root := t.TempDir()
	write(t, root, "proc/meminfo", "MemTotal:       4096 kB\nMemFree:  1 kB\nMemAvailable:   1024 kB\nCached:  512 kB\nHugePages_Total:  7\n")
	s := metrics.New(metrics.Config{Root: root, Now: func() time.Time { return time.Unix(1_700_000_000, 0) }})
	for _, c := range []struct {
		stat string
		used float64
	}{
		{"cpu  10 0 10 60 20 0 0 0 99 99\ncpu0 1 1\n", 20}, // since the start
		{"cpu  60 0 10 110 20 0 0 0\n", 50},
		{"cpu  60 0 10 110 20 0 0 0\n", 0}, // at once
		{"cpu  1 0 1 1 1 0 0 0\n", 0},      // restored from before
		{"cpu  101 0 1 1 1 0 0 0\n", 100},
		{"nonsense\n", 0},
	} {
		write(t, root, "proc/stat", c.stat)
		m, err := s.Metrics()
		if err != nil || m.CPUUsed != c.used {
			t.Errorf("%q: %v%% used, %v; want %v", c.stat, m.CPUUsed, err, c.used)
		}
		if m.DiskTotal == 0 || m.DiskUsed == 0 || m.DiskUsed > m.DiskTotal || m.CPUs == 0 {
			t.Errorf("disk and processors: %+v", m)
		}
		m.CPUUsed, m.CPUs, m.DiskTotal, m.DiskUsed = 0, 0, 0, 0
		want := metrics.Metrics{Time: 1_700_000_000, MemTotal: 4 << 20, MemUsed: 3 << 20, MemTotalMiB: 4, MemUsedMiB: 3, MemCache: 512 << 10}
		if d := cmp.Diff(want, m); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
}

func TestRoutes(t *testing.T) {
	mux := http.NewServeMux()
	metrics.New(metrics.Config{}).Register(mux)
	get := func(path string) (int, map[string]any) {
		t.Helper()
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		var body map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s: %q: %v", path, w.Body, err)
		}
		return w.Code, body
	}
	status, body := get("/metrics")
	for _, name := range []string{"ts", "cpu_count", "cpu_used_pct", "mem_total", "mem_used", "mem_cache", "mem_total_mib", "mem_used_mib", "disk_used", "disk_total"} {
		if _, ok := body[name].(float64); !ok || status != 200 {
			t.Errorf("/metrics: %d, %s is %v", status, name, body[name])
		}
	}
	if status, body := get("/envs"); status != 200 || len(body) != 0 {
		t.Errorf("/envs: %d %v", status, body)
	}
	mux = http.NewServeMux()
	metrics.New(metrics.Config{Root: t.TempDir()}).Register(mux)
	if status, body := get("/metrics"); status != 500 || body["code"] != 500.0 || body["message"] == "" {
		t.Errorf("without procfs: %d %v", status, body)
	}
}
