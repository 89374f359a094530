package startenv

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"io"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/guest"
	pb "github.com/billethq/billet/internal/guest/processpb"
)

func envelope(flags byte, message []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(message))), message...)
}

func request(t *testing.T, codec string, body []byte) *http.Request {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, "http://guest/process.Process/Start", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/connect+"+codec)
	return r
}

func start() *pb.StartRequest {
	return &pb.StartRequest{Process: &pb.ProcessConfig{Cmd: "sh", Envs: map[string]string{"OWN": "1", "BOTH": "own"}}}
}

func zipped(t *testing.T, b []byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	if _, err := z.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestAdd_RequestsOwnVariablesWin(t *testing.T) {
	js, err := protojson.Marshal(start())
	if err != nil {
		t.Fatal(err)
	}
	bin, err := proto.Marshal(start())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		codec string
		body  []byte
		gzip  bool
	}{
		"json":            {"json", envelope(0, js), false},
		"proto":           {"proto", envelope(0, bin), false},
		"compressed json": {"json", envelope(flagCompressed, zipped(t, js)), true},
	} {
		t.Run(name, func(t *testing.T) {
			r := request(t, c.codec, c.body)
			if c.gzip {
				r.Header.Set("Connect-Content-Encoding", "gzip")
			}
			if !Applies(r) {
				t.Fatal("it does not apply")
			}
			if err := Add(r, map[string]string{"MORE": "2", "BOTH": "given"}); err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(r.Body)
			if err != nil || int64(len(body)) != r.ContentLength || len(body) != headerSize+int(binary.BigEndian.Uint32(body[1:])) {
				t.Fatalf("%d bytes, length %d, %v", len(body), r.ContentLength, err)
			}
			var got pb.StartRequest
			if c.codec == "json" {
				err = protojson.Unmarshal(body[headerSize:], &got)
			} else {
				err = proto.Unmarshal(body[headerSize:], &got)
			}
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]string{"OWN": "1", "BOTH": "own", "MORE": "2"}
			if diff := cmp.Diff(want, got.GetProcess().GetEnvs()); diff != "" || got.GetProcess().GetCmd() != "sh" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestAdd_Refuses(t *testing.T) {
	huge := binary.BigEndian.AppendUint32([]byte{0}, guest.MaxMessage+1)
	bomb := zipped(t, make([]byte, guest.MaxMessage+1))
	for name, c := range map[string]struct {
		codec, encoding string
		body            []byte
	}{
		"nothing":                {"json", "", nil},
		"half an envelope":       {"json", "", []byte{0, 0}},
		"half a message":         {"json", "", envelope(0, []byte("{}"))[:6]},
		"a size beyond all":      {"json", "", huge},
		"no JSON":                {"json", "", envelope(0, []byte("x"))},
		"no protobuf":            {"proto", "", envelope(0, []byte{0xff})},
		"another codec":          {"text", "", envelope(0, []byte("{}"))},
		"another compression":    {"json", "br", envelope(flagCompressed, []byte("x"))},
		"broken compression":     {"json", "gzip", envelope(flagCompressed, []byte("x"))},
		"what unpacks too large": {"json", "gzip", envelope(flagCompressed, bomb)},
	} {
		r := request(t, c.codec, c.body)
		r.Header.Set("Connect-Content-Encoding", c.encoding)
		if err := Add(r, nil); !errs.Is(err, errs.Invalid) {
			t.Errorf("%s: %v, want invalid", name, err)
		}
	}
}

func FuzzAdd(f *testing.F) {
	f.Add("application/connect+json", envelope(0, []byte(`{"process":{"cmd":"sh"}}`)))
	f.Add("application/connect+proto", envelope(flagCompressed, []byte{1}))
	f.Fuzz(func(t *testing.T, media string, body []byte) {
		r, err := http.NewRequest(http.MethodPost, "http://guest/process.Process/Start", bytes.NewReader(body))
		if err != nil {
			t.Skip()
		}
		r.Header["Content-Type"] = []string{media}
		if err := Add(r, map[string]string{"A": "1"}); err != nil && !errs.Is(err, errs.Invalid) {
			t.Errorf("%q: %v, want invalid or nothing", body, err)
		}
	})
}
