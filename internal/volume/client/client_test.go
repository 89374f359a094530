package client

import (
	"bytes"
	"testing"
)

func TestVolume_SavedFilesAreReadElsewhere(t *testing.T) {
	w := newWorld(t)
	v := w.spawn(w.config(w.image))
	if got := v.read("big"); !bytes.Equal(got, bigFile()) {
		t.Error("a file of the image reads back changed")
	}
	v.write("note", []byte("hello\n"))
	first := v.save(true)
	v.write("second", bigFile())
	w.check(v.Unmount(w.ctx))
	second := v.save(true)
	w.check(v.Close(w.ctx))
	w.check(v.Gone())
	t.Logf("steps %v\nfirst %+v\nsecond %+v", v.ready.Steps, first, second)

	v = w.spawn(w.config(second.Root))
	if got := v.read("note"); string(got) != "hello\n" {
		t.Errorf("note reads %q", got)
	}
	if got := v.read("second"); !bytes.Equal(got, bigFile()) {
		t.Error("second reads back changed")
	}
	if !v.status().Mounted {
		t.Error("status does not say mounted")
	}
}
