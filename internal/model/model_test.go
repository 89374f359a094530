package model_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// invariant 1: a workspace knows neither a host nor a node nor an instance.
func TestWorkspace_HasNoHost(t *testing.T) {
	for f := range fields(model.Workspace{}) {
		switch f.Type {
		case reflect.TypeFor[model.NodeID](), reflect.TypeFor[model.InstanceID]():
			t.Errorf("Workspace.%s is a %s", f.Name, f.Type)
		}
		if name := strings.ToLower(f.Name); strings.Contains(name, "host") || strings.Contains(name, "node") {
			t.Errorf("Workspace.%s names a place", f.Name)
		}
	}
}

// invariant 11
func TestRecords_HaveTenantAndRegion(t *testing.T) {
	for _, record := range []any{
		model.Principal{}, model.Token{}, model.Node{}, model.Workspace{}, model.Instance{}, model.Snapshot{},
		model.Image{}, model.ImageGeneration{}, model.FlushIntent{}, model.Event{},
	} {
		var types []reflect.Type
		for f := range fields(record) {
			types = append(types, f.Type)
		}
		for _, want := range []reflect.Type{reflect.TypeFor[model.TenantID](), reflect.TypeFor[model.RegionID]()} {
			if !slices.Contains(types, want) {
				t.Errorf("%T has no %s", record, want)
			}
		}
	}
}

// invariant 10: what is kept of a token is its hash.
func TestToken_KeepsNoSecret(t *testing.T) {
	for f := range fields(model.Token{}) {
		if name := strings.ToLower(f.Name); strings.Contains(name, "secret") || strings.Contains(name, "value") || f.Type == reflect.TypeFor[[]byte]() {
			t.Errorf("Token.%s may hold a secret", f.Name)
		}
	}
}

func fields(record any) func(func(reflect.StructField) bool) {
	return slices.Values(reflect.VisibleFields(reflect.TypeOf(record)))
}

func TestNewID(t *testing.T) {
	const n = 5000
	seen, letters := map[string]bool{}, map[byte]int{}
	for range n {
		id := model.NewID()
		if !model.IsID(id) || seen[id] {
			t.Fatalf("id %q is malformed or was given before", id)
		}
		seen[id] = true
		for i := range len(id) {
			letters[id[i]]++
		}
	}
	// 36 characters share 20 n places; 2778 each, with a deviation of 52. A bias
	// of a plain remainder would give the first four 14 % more.
	for c, count := range letters {
		if count < 2778-8*52 || count > 2778+8*52 {
			t.Errorf("%q stands %d times in %d ids, want about 2778", c, count, n)
		}
	}
}

func TestCheckName(t *testing.T) {
	for _, name := range []string{"a", "0", "dev", "a-b", "a--b", strings.Repeat("a", 40), strings.Repeat("a", 19), strings.Repeat("a", 21)} {
		if err := model.CheckName("workspace", name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{
		"", "-a", "a-", "A", "a_b", "a.b", "a/b", "../a", "a\x00", "a\n", "ä", " a", strings.Repeat("a", 41), strings.Repeat("a", 20),
	} {
		err := model.CheckName("workspace", name)
		if !errs.Is(err, errs.Invalid) || errs.HintOf(err) == "" {
			t.Errorf("%q: %v, want an error of kind invalid with a hint", name, err)
		}
	}
}

func FuzzCheckName(f *testing.F) {
	for _, s := range []string{"dev", "", "a-", "../etc", strings.Repeat("a", 20)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if model.CheckName("workspace", name) != nil {
			return
		}
		// What is accepted is safe as a path's segment, a DNS label and an
		// argument, and is no id.
		if len(name) == 0 || len(name) > model.MaxNameLength || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" ||
			name[0] == '-' || name[len(name)-1] == '-' || model.IsID(name) {
			t.Errorf("%q was accepted", name)
		}
	})
}

func TestRoot(t *testing.T) {
	good := model.Root("b3:" + strings.Repeat("0123456789abcdef", 4))
	if err := good.Check(); err != nil || good.Short() != "0123456789ab" {
		t.Errorf("%s: check %v, short %q", good, err, good.Short())
	}
	for _, r := range []model.Root{"", "b3:", good[:66], good + "0", "sha256:" + good[3:], model.Root(strings.ToUpper(string(good))), good + "\n"} {
		if err := r.Check(); !errs.Is(err, errs.Invalid) {
			t.Errorf("%q: %v, want an error of kind invalid", r, err)
		}
	}
	if got := model.Root("b3:12").Short(); got != "b3:12" {
		t.Errorf("short of a short one is %q", got)
	}
}
