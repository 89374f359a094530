package volume

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/billethq/billet/internal/model"
)

func drawRoot(t *rapid.T, label string) model.Root {
	if rapid.Bool().Draw(t, label+" is none") {
		return ""
	}
	return drawDigest(t, label).root()
}

func drawMeta(t *rapid.T) (Meta, []Entry) {
	image := rapid.Bool().Draw(t, "image")
	meta := Meta{
		Home:        SlotTenant,
		Subject:     model.SubjectID(rapid.StringMatching(`([a-z0-9][a-z0-9-]{0,20})?`).Draw(t, "subject")),
		Epoch:       model.Epoch(rapid.Uint64().Draw(t, "epoch")),
		Seq:         model.Seq(rapid.Uint64().Draw(t, "seq")),
		Parent:      drawRoot(t, "parent"),
		Size:        rapid.Int64Range(1, 5*LeafEntries).Draw(t, "blocks") * BlockSize,
		Consistency: rapid.SampledFrom([]Consistency{Crash, Frozen}).Draw(t, "consistency"),
		Writer:      rapid.SampledFrom([]Writer{WriterHost, WriterGuest}).Draw(t, "writer"),
		Created:     fromMicros(rapid.Int64Range(0, 1<<52).Draw(t, "created")),
		Prebuild:    drawRoot(t, "prebuild"),
		Domains:     [MaxDomains]string{"tenant", "deployment"},
	}
	kinds := []EntryKind{KindZero, KindTenant, KindDeployment}
	if image {
		meta.Home, meta.Domains[SlotTenant] = SlotDeployment, ""
		kinds = []EntryKind{KindZero, KindDeployment}
	}
	if rapid.Bool().Draw(t, "has trace") {
		meta.BootTrace = drawDigest(t, "trace")
	}
	names := make([]Entry, meta.Leaves())
	for i := range names {
		if names[i].Kind = rapid.SampledFrom(kinds).Draw(t, "kind"); !names[i].IsZero() {
			names[i].Digest = drawDigest(t, "leaf")
		}
	}
	return meta, names
}

func TestRoot_RoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		meta, names := drawMeta(t)
		object, err := encodeRoot(meta, names)
		if err != nil {
			t.Fatal(err)
		}
		gotMeta, gotNames, err := decodeRoot(object)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(meta, gotMeta); diff != "" {
			t.Errorf("metadata (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(names, gotNames); diff != "" {
			t.Errorf("leaves (-want +got):\n%s", diff)
		}
	})
}

func goldenRoot(t testing.TB) (Meta, []Entry, []byte) {
	t.Helper()
	meta := Meta{
		Home: SlotTenant, Subject: testSubject, Epoch: 3, Seq: 0x0102, Parent: Digest{1}.root(), Size: 2*LeafEntries*BlockSize + BlockSize,
		Consistency: Frozen, Writer: WriterGuest, Created: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC),
		Prebuild: Digest{2}.root(), BootTrace: Digest{3}, Domains: [MaxDomains]string{testTenant, "deployment"},
	}
	names := []Entry{{KindTenant, Digest{4}}, {}, {KindDeployment, Digest{5}}}
	object, err := encodeRoot(meta, names)
	if err != nil {
		t.Fatal(err)
	}
	return meta, names, object
}

func TestRoot_Golden(t *testing.T) {
	meta, names, object := goldenRoot(t)
	golden(t, "root.golden", object)
	golden(t, "root-names.golden", []byte(string(rootID(object))+"\n"+diskRoot(meta, names).String()+"\n"))
}

// One root has one encoding: whatever else decodes would have two ids.
func TestRoot_EveryChangeIsAnotherRootOrNone(t *testing.T) {
	_, _, object := goldenRoot(t)
	for at := range object {
		for bit := range 8 {
			changed := bytes.Clone(object)
			changed[at] ^= 1 << bit
			if meta, names, err := decodeRoot(changed); err == nil {
				if again, err := encodeRoot(meta, names); err != nil || !bytes.Equal(again, changed) {
					t.Errorf("bit %d of byte %d: read as a root that is written otherwise (%v)", bit, at, err)
				}
			}
		}
		if _, _, err := decodeRoot(object[:at]); err == nil {
			t.Errorf("cut to %d of %d bytes: read", at, len(object))
		}
	}
}

func TestRoot_LargestFitsItsBound(t *testing.T) {
	meta := Meta{Home: SlotTenant, Size: MaxDeviceSize, Consistency: Crash, Writer: WriterHost, Domains: [MaxDomains]string{"tenant", "deployment"}}
	names := make([]Entry, meta.Leaves())
	for i := range names {
		names[i] = Entry{KindTenant, Digest{1}}
	}
	object, err := encodeRoot(meta, names)
	if err != nil {
		t.Fatal(err)
	}
	if len(object) > maxRootObject {
		t.Errorf("a 16 TiB root has %d bytes, at most %d are read", len(object), maxRootObject)
	}
	if _, _, err := decodeRoot(object); err != nil {
		t.Error(err)
	}
}

// What a memory image is bound to is the disk, and nothing that is said of it.
func TestDiskRoot_IsTheDiskAlone(t *testing.T) {
	meta, names, _ := goldenRoot(t)
	want := diskRoot(meta, names)
	other := meta
	other.Seq, other.Created, other.Parent = 9, time.Time{}, ""
	if got := diskRoot(other, names); got != want {
		t.Error("other metadata gave another disk root")
	}
	other = meta
	other.Size += BlockSize
	if diskRoot(other, names) == want {
		t.Error("another size gave the same disk root")
	}
	if diskRoot(meta, []Entry{names[0], names[2], {}}) == want {
		t.Error("another order of leaves gave the same disk root")
	}
}

func TestMeta_Refuses(t *testing.T) {
	good, names, _ := goldenRoot(t)
	for what, spoil := range map[string]func(*Meta){
		"no size":              func(m *Meta) { m.Size = 0 },
		"negative size":        func(m *Meta) { m.Size = -BlockSize },
		"part of a block":      func(m *Meta) { m.Size++ },
		"too large":            func(m *Meta) { m.Size = MaxDeviceSize + BlockSize },
		"no consistency":       func(m *Meta) { m.Consistency = "" },
		"unknown writer":       func(m *Meta) { m.Writer = "me" },
		"subject with a slash": func(m *Meta) { m.Subject = "a/b" },
		"subject that climbs":  func(m *Meta) { m.Subject = ".." },
		"malformed parent":     func(m *Meta) { m.Parent = "b3:12" },
		"no home domain":       func(m *Meta) { m.Domains[SlotTenant] = "" },
		"domain that climbs":   func(m *Meta) { m.Domains[SlotTenant] = "../x" },
		"unused domain":        func(m *Meta) { m.Domains[3] = "x" },
		"image of a tenant":    func(m *Meta) { m.Home = SlotDeployment },
		"unknown home":         func(m *Meta) { m.Home = 2 },
	} {
		meta := good
		spoil(&meta)
		if _, err := encodeRoot(meta, names); err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
}

func FuzzDecodeRoot(f *testing.F) {
	_, _, object := goldenRoot(f)
	f.Add(object)
	f.Add([]byte(rootMagic))
	f.Fuzz(func(t *testing.T, object []byte) {
		meta, names, err := decodeRoot(object)
		if err != nil {
			return
		}
		if again, err := encodeRoot(meta, names); err != nil || !bytes.Equal(again, object) {
			t.Fatalf("read as a root that is written otherwise: %v", err)
		}
	})
}
