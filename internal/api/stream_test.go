package api

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

func readAll(r io.Reader, stopAfter int) ([]string, int, error) {
	var got []string
	alive := 0
	err := readStream(r, func(m message) (bool, error) {
		got = append(got, m.name+"|"+m.id+"|"+string(m.data))
		return len(got) != stopAfter, nil
	}, func() { alive++ })
	return got, alive, err
}

func TestReadStream_Parses(t *testing.T) {
	const text = ":\n: comment\n\nevent: progress\ndata: {\"a\":\ndata:1}\n\nid: 7\nevent: event\r\ndata: x\n\nevent: nodata\n\nunknown: y\ndata: z\n\ndata: cut off"
	got, alive, err := readAll(iotest.OneByteReader(strings.NewReader(text)), 0)
	if !errors.Is(err, errStreamEnded) {
		t.Errorf("got error %v", err)
	}
	want := []string{"progress||{\"a\":\n1}", "event|7|x", "||z"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if want := strings.Count(text, "\n") + 1; alive != want {
		t.Errorf("alive for %d lines of %d", alive, want)
	}
}

func TestReadStream_EndsWhenTold(t *testing.T) {
	got, _, err := readAll(strings.NewReader("data: 1\n\ndata: 2\n\ndata: 3\n\n"), 2)
	var end enough
	if !errors.As(err, &end) || end.err != nil || len(got) != 2 {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestReadStream_IsBounded(t *testing.T) {
	line := "data: " + strings.Repeat("x", 1<<19) + "\n"
	for name, r := range map[string]io.Reader{
		"one line":   strings.NewReader("data: " + strings.Repeat("x", maxStreamLine+10)),
		"many lines": strings.NewReader(strings.Repeat(line, 4)),
	} {
		if got, _, err := readAll(r, 0); err == nil || len(got) != 0 {
			t.Errorf("%s: got %d messages, %v", name, len(got), err)
		}
	}
}

func FuzzReadStream(f *testing.F) {
	f.Add("event: progress\ndata: {}\n\n")
	f.Add(":\n\nid: 1\ndata\ndata:\n\n")
	f.Fuzz(func(t *testing.T, text string) {
		got, _, err := readAll(strings.NewReader(text), 0)
		if err == nil {
			t.Fatal("a stream that ended by itself is no success")
		}
		if whole := strings.Count(text, "\n"); len(got) > whole {
			t.Fatalf("%d messages of %d lines", len(got), whole)
		}
	})
}
