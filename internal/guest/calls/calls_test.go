package calls

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/billethq/billet/internal/guest"
)

func post(path, more, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: guest\r\n%sContent-Length: %d\r\n\r\n%s", path, more, len(body), body)
}

const chunked = "POST /process.Process/Start HTTP/1.1\r\nHost: guest\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nA;x=y\r\n0123456789\r\n0\r\nT: v\r\n\r\n"

func TestCounts_WhatIsSomebodysDoing(t *testing.T) {
	dial := "GET /billet/dial?network=tcp&address=8080 HTTP/1.1\r\nHost: guest\r\nConnection: Upgrade\r\nUpgrade: billet-stream\r\n\r\n"
	for name, c := range map[string]struct {
		text         string
		calls, ports int64
	}{
		"a command":               {text: chunked, calls: 1},
		"a key":                   {text: post("/process.Process/SendInput", "", "k"), calls: 1},
		"a signal":                {text: post("/process.Process/SendSignal", "", "{}"), calls: 1},
		"a file":                  {text: post("/files?path=a", "", "content"), calls: 1},
		"a call to come":          {text: post("/new.Service/Do", "", "{}"), calls: 1},
		"an acknowledgement":      {text: post(guest.AckPath, "", "{}")},
		"coming back":             {text: strings.Replace(chunked, "/Start", "/Connect", 1)},
		"a look":                  {text: "GET /metrics HTTP/1.1\r\nHost: guest\r\n\r\n"},
		"a window that is fitted": {text: post("/process.Process/Update", "", "{}")},
		"all in a row":            {text: post(guest.AckPath, "", "{}") + chunked + post(guest.AckPath, "", "{}") + post("/process.Process/SendInput", "", "k"), calls: 2},
		"forwarded bytes":         {text: post("/process.Process/SendInput", guest.HeaderFlow+": 1\r\n", "12345"), ports: 5},
		"a port":                  {text: dial + "GET / HTTP/1.1\r\n\r\n", ports: 18},
		"no HTTP":                 {text: "\x00\x01\r\n\r\nmore", ports: 10},
		"a bad chunk":             {text: strings.Replace(chunked, "\r\nA;", "\r\nZ;", 1), calls: 1, ports: int64(len("Z;x=y\r\n0123456789\r\n0\r\nT: v\r\n\r\n"))},
		"a head without an end":   {text: "GET /" + strings.Repeat("a", maxHead), ports: maxHead + 5},
		"half a head":             {text: "GET / HTTP/1.1\r\nHost: "},
	} {
		t.Run(name, func(t *testing.T) {
			var got Counts
			s := scanner{to: &got}
			s.see([]byte(c.text))
			if got.Calls() != c.calls || got.Ports() != c.ports {
				t.Errorf("got %d calls and %d bytes, want %d and %d", got.Calls(), got.Ports(), c.calls, c.ports)
			}
		})
	}
}

// A long upload is work for as long as its pieces come.
func TestCounts_PiecesOfALongCall(t *testing.T) {
	var got Counts
	s := scanner{to: &got}
	text := post("/files?path=a", "", strings.Repeat("x", 1000))
	for _, piece := range []string{text[:500], text[500:600], text[600:700], text[700:]} {
		s.see([]byte(piece))
	}
	if got.Calls() != 4 {
		t.Errorf("got %d, want one for each piece", got.Calls())
	}
}

func TestCounts_PassesEverythingOn(t *testing.T) {
	client, agent := net.Pipe()
	var counts Counts
	c := counts.Count(agent)
	go func() {
		_, _ = c.Write([]byte(chunked))
		_ = c.Close()
	}()
	got, err := io.ReadAll(client)
	if err != nil || string(got) != chunked {
		t.Errorf("got %q, %v", got, err)
	}
	client, agent = net.Pipe()
	go func() { _, _ = client.Write([]byte("answer")); _ = client.Close() }()
	if got, err := io.ReadAll(counts.Count(agent)); err != nil || string(got) != "answer" || counts.Egress() != 6 {
		t.Errorf("got %q, %v, %d bytes out", got, err, counts.Egress())
	}
}

// FuzzScanner: bytes mean the same however they are cut, whatever they are.
func FuzzScanner(f *testing.F) {
	f.Add([]byte(chunked+post("/files", "", "abc")), uint8(3))
	f.Add([]byte(post("/process.Process/SendInput", guest.HeaderFlow+": 1\r\n", "12345")+"\x00\r\n\r\n"), uint8(1))
	f.Add([]byte("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n"), uint8(7))
	f.Fuzz(func(t *testing.T, text []byte, step uint8) {
		var whole, cut Counts
		a, b := scanner{to: &whole}, scanner{to: &cut}
		a.see(text)
		for rest := bytes.Clone(text); len(rest) > 0; {
			n := min(int(step)+1, len(rest))
			b.see(rest[:n])
			rest = rest[n:]
		}
		if a.state != b.state || a.left != b.left || whole.Ports() != cut.Ports() || whole.Calls() > cut.Calls() {
			t.Errorf("in one piece state %d, left %d, %d bytes; in pieces of %d state %d, left %d, %d bytes", a.state, a.left, whole.Ports(), step, b.state, b.left, cut.Ports())
		}
	})
}
