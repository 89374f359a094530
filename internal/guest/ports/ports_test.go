package ports

import (
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/billethq/billet/internal/guest"
)

const heading = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"

func TestListening_ReadsBothTables(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("proc/net/tcp", heading+
		"   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 777 1 0 100 0 0 10 0\n"+
		"   1: 0100007F:1F90 0100007F:C000 01 00000000:00000000 00:00000000 00000000  1000        0 778 1 0 100 0 0 10 0\n"+
		"   2: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 0 1 0 100 0 0 10 0\n"+
		"   3: nonsense 0A\n")
	write("proc/net/tcp6", heading+
		"   0: 00000000000000000000000001000000:0BB8 00000000000000000000000000000000:0000 0A 0:0 00:0 0 0 0 779 1\n"+
		"   1: 00000000000000000000000000000000:0050 00000000000000000000000000000000:0000 0A 0:0 00:0 0 0 0 780 1\n")
	write("proc/12/comm", "python3\n")
	write("proc/12/fd/.keep", "")
	if err := os.Symlink("socket:[777]", filepath.Join(root, "proc/12/fd/5")); err != nil {
		t.Fatal(err)
	}
	s := New(slog.New(slog.DiscardHandler))
	s.root = root
	want := guest.Ports{Ports: []guest.Listener{
		{Address: "0.0.0.0", Port: 22},
		{Address: "::", Port: 80},
		{Address: "::1", Port: 3000},
		{Address: "127.0.0.1", Port: 8080, UID: 1000, Process: "python3"},
	}}
	if diff := cmp.Diff(want, s.Listening()); diff != "" {
		t.Error(diff)
	}
	s.root = t.TempDir() // a guest without proc
	if diff := cmp.Diff(guest.Ports{Ports: []guest.Listener{}}, s.Listening()); diff != "" {
		t.Error(diff)
	}
}

func FuzzParseTable(f *testing.F) {
	f.Add(heading + "   0: 0100007F:1F90 00000000:0000 0A 0:0 00:0 0 1000 0 777 1\n")
	f.Add(heading + "0: :: 0 0A 0 0 0 0 0 0")
	f.Fuzz(func(t *testing.T, text string) {
		for _, s := range parseTable(strings.NewReader(text)) {
			if net.ParseIP(s.Address) == nil {
				t.Errorf("%q: address %q", text, s.Address)
			}
		}
	})
}

// A guest's servers may have many clients, and never all of the agent's
// streams.
func TestDial_IsBounded(t *testing.T) {
	s := New(slog.New(slog.DiscardHandler))
	mux := http.NewServeMux()
	s.Register(mux)
	for range maxStreams {
		s.places <- struct{}{}
	}
	r := httptest.NewRequest(http.MethodGet, guest.DialPath+"?"+url.Values{"network": {"tcp"}, "address": {"localhost:1"}}.Encode(), nil)
	w := httptest.NewRecorder()
	if mux.ServeHTTP(w, r); w.Code != http.StatusUpgradeRequired {
		t.Errorf("without an upgrade: %d, want 426", w.Code)
	}
	r.Header.Set("Upgrade", guest.StreamProtocol)
	w = httptest.NewRecorder()
	if mux.ServeHTTP(w, r); w.Code != http.StatusServiceUnavailable {
		t.Errorf("one too many: %d, want 503", w.Code)
	}
	<-s.places
	w = httptest.NewRecorder()
	if mux.ServeHTTP(w, r); w.Code != http.StatusBadGateway || len(s.places) != maxStreams-1 {
		t.Errorf("after one has ended: %d with %d places taken, want 502 and %d", w.Code, len(s.places), maxStreams-1)
	}
}
