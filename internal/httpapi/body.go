package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
)

const (
	// maxBody bounds what people and programs send: a few names.
	maxBody = 64 << 10
	// maxPlaneBody bounds what a node sends: 10,000 instances with details.
	maxPlaneBody = 16 << 20
	// maxKeyLength bounds an idempotency key.
	maxKeyLength = 255
	// maxNamed bounds the unknown fields that an error names.
	maxNamed = 20
)

// body reads the request's JSON into a T. Unknown fields are refused, all of
// them by name: a mistyped "forse" must not be a silent no.
func body[T any](x *exchange, limit int64) (T, error) {
	var v T
	data, err := x.read(limit)
	if err != nil {
		return v, err
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return v, errs.New(errs.Invalid, "the request has no body").WithHint("send a JSON object; the shapes are in /v1/openapi.yaml")
	}
	err = decode(data, &v)
	return v, err
}

// optionalBody is body for operations that need none: none is the zero T.
func optionalBody[T any](x *exchange) (T, error) {
	var v T
	data, err := x.read(maxBody)
	if err != nil || len(bytes.TrimSpace(data)) == 0 {
		return v, err
	}
	err = decode(data, &v)
	return v, err
}

func (x *exchange) read(limit int64) ([]byte, error) {
	// A client that sends its body byte by byte must not hold this for ever.
	rc := http.NewResponseController(x.w)
	_ = rc.SetReadDeadline(x.clock.Now().Add(bodyTimeout))
	data, err := io.ReadAll(http.MaxBytesReader(x.w, x.r.Body, limit))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, &transport{http.StatusRequestEntityTooLarge, errs.New(errs.Invalid, "the body is larger than %d bytes", limit).
			WithHint("content goes over the attachment, not through the API")}
	case err != nil:
		return nil, errs.Wrap(errs.Invalid, err, "read the body")
	}
	_ = rc.SetReadDeadline(time.Time{})
	if len(data) == 0 {
		return nil, nil
	}
	if t, _, err := mime.ParseMediaType(x.r.Header.Get("Content-Type")); err != nil || t != "application/json" {
		return nil, &transport{http.StatusUnsupportedMediaType, errs.New(errs.Invalid, "the body is not declared as JSON").
			WithHint("send Content-Type: application/json")}
	}
	return data, nil
}

// decode reads one JSON object into v, a pointer to a struct.
func decode(data []byte, v any) error {
	var tree any
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(&tree); err != nil {
		return errs.New(errs.Invalid, "the body is not JSON: %s", strings.TrimPrefix(err.Error(), "json: ")).
			WithHint("the fault is near byte %d", dec.InputOffset())
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errs.New(errs.Invalid, "the body has more than one JSON value")
	}
	if _, ok := tree.(map[string]any); !ok {
		return errs.New(errs.Invalid, "the body is not a JSON object")
	}
	if names := unknown(nil, "", tree, reflect.TypeOf(v).Elem()); len(names) > 0 {
		slices.Sort(names)
		more := ""
		if len(names) > maxNamed {
			more, names = " and "+strconv.Itoa(len(names)-maxNamed)+" more", names[:maxNamed]
		}
		return errs.New(errs.Invalid, "unknown fields: %s%s", strings.Join(names, ", "), more).
			WithHint("known here: %s", strings.Join(fieldNames(reflect.TypeOf(v).Elem()), ", "))
	}
	if err := json.Unmarshal(data, v); err != nil {
		var t *json.UnmarshalTypeError
		if errors.As(err, &t) {
			return errs.New(errs.Invalid, "field %s: a %s does not fit there", t.Field, t.Value).WithHint("the shapes are in /v1/openapi.yaml")
		}
		return errs.New(errs.Invalid, "the body does not fit: %s", strings.TrimPrefix(err.Error(), "json: ")).WithHint("the shapes are in /v1/openapi.yaml")
	}
	return nil
}

// unknown appends the paths of object members that t has no field for. Names
// are compared exactly, unlike encoding/json does: "Force" is not "force".
func unknown(names []string, path string, tree any, t reflect.Type) []string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch tree := tree.(type) {
	case map[string]any:
		if t.Kind() != reflect.Struct || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
			return names
		}
		fields := jsonFields(t)
		for name, sub := range tree {
			at := path + name
			if ft, ok := fields[name]; ok {
				names = unknown(names, at+".", sub, ft)
			} else {
				names = append(names, at)
			}
		}
	case []any:
		if t.Kind() != reflect.Slice {
			return names
		}
		for i, sub := range tree {
			names = unknown(names, strings.TrimSuffix(path, ".")+"["+strconv.Itoa(i)+"].", sub, t.Elem())
		}
	}
	return names
}

func jsonFields(t reflect.Type) map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			fields[name] = f.Type
		}
	}
	return fields
}

func fieldNames(t reflect.Type) []string {
	var names []string
	for name := range jsonFields(t) {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// query returns the parameters of the request and refuses others than known.
func (x *exchange) query(known ...string) (map[string]string, error) {
	out := map[string]string{}
	var bad []string
	for name, values := range x.r.URL.Query() {
		if !slices.Contains(known, name) || len(values) != 1 {
			bad = append(bad, name)
			continue
		}
		out[name] = values[0]
	}
	if len(bad) > 0 {
		slices.Sort(bad)
		hint := "this operation has none"
		if len(known) > 0 {
			hint = "known here, once each: " + strings.Join(known, ", ")
		}
		return nil, errs.New(errs.Invalid, "unknown or repeated parameters: %s", strings.Join(bad[:min(len(bad), maxNamed)], ", ")).WithHint("%s", hint)
	}
	return out, nil
}

// key returns the idempotency key, "" when there is none.
func (x *exchange) key() (string, error) {
	k := x.r.Header.Get(api.IdempotencyHeader)
	if len(k) > maxKeyLength || strings.ContainsFunc(k, func(r rune) bool { return r < 0x21 || r > 0x7e }) {
		return "", errs.New(errs.Invalid, "the %s is not 1 to %d visible characters", api.IdempotencyHeader, maxKeyLength).WithHint("use a random id, one for each creation you mean")
	}
	return k, nil
}

// answer writes v as JSON.
func answer(x *exchange, status int, v any, err error) error {
	if err != nil {
		return err
	}
	data, err := json.Marshal(v)
	if err != nil {
		return errs.Wrap(errs.Internal, err, "encode the answer")
	}
	x.w.Header().Set("Content-Type", "application/json")
	x.w.WriteHeader(status)
	_, _ = x.w.Write(append(data, '\n'))
	return nil
}

// answerList writes a list: an empty one is [], never null.
func answerList[T any](x *exchange, items []T, err error) error {
	if items == nil {
		items = []T{}
	}
	return answer(x, http.StatusOK, api.List[T]{Items: items}, err)
}

// answerNothing says that it was done.
func answerNothing(x *exchange, status int, err error) error {
	if err == nil {
		x.w.WriteHeader(status)
	}
	return err
}
