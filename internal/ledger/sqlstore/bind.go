package sqlstore

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// bind turns arguments into the few types that both drivers store alike:
// strings of any type into valid text, times into microseconds, hashes into
// bytes.
func bind(args []any) []any {
	out := make([]any, len(args))
	for i, a := range args {
		switch v := a.(type) {
		case time.Time:
			out[i] = v.UnixMicro()
		case [32]byte:
			out[i] = v[:]
		default:
			if r := reflect.ValueOf(a); r.Kind() == reflect.String {
				out[i] = text(r.String())
			} else {
				out[i] = a
			}
		}
	}
	return out
}

// text replaces what PostgreSQL refuses in text, NUL and invalid UTF-8, by
// U+FFFD: a guest's last words must never keep its end from being recorded.
func text(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// cut shortens s to at most n bytes without splitting a character.
func cut(s string, n int) string {
	if s = text(s); len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "")
}

// at scans microseconds into a time in UTC.
type at struct{ t *time.Time }

func (a at) Scan(src any) error {
	us, ok := src.(int64)
	if !ok {
		return fmt.Errorf("time column holds a %T", src)
	}
	*a.t = time.UnixMicro(us).UTC()
	return nil
}

// digest scans a 32-byte hash.
type digest struct{ d *[32]byte }

func (d digest) Scan(src any) error {
	b, ok := src.([]byte)
	if !ok || len(b) != len(d.d) {
		return fmt.Errorf("hash column does not hold %d bytes", len(d.d))
	}
	copy(d.d[:], b)
	return nil
}

// fromJSON scans JSON text.
type fromJSON struct{ v any }

func (j fromJSON) Scan(src any) error {
	switch s := src.(type) {
	case string:
		return json.Unmarshal([]byte(s), j.v)
	case []byte:
		return json.Unmarshal(s, j.v)
	}
	return fmt.Errorf("json column holds a %T", src)
}

// toJSON gives the text of v, which the methods build from marshalable types.
func toJSON(v any) (string, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return "", errs.Wrap(errs.Invalid, err, "encode a record")
	}
	return string(b), nil
}

// stampPhases brings the times of phases to what the ledger keeps.
// maxPhaseDetail bounds the words about one phase: they can be a guest's.
const maxPhaseDetail = 1 << 10

func stampPhases(phases []model.Phase) []model.Phase {
	var out []model.Phase
	for _, p := range phases {
		out = append(out, model.Phase{Name: text(p.Name), At: stamp(p.At), Detail: cut(text(p.Detail), maxPhaseDetail)})
	}
	return out
}
