package device

import "testing"

// What the file system reads and writes is told in bytes; what it discards is none.
func TestStats_Bytes(t *testing.T) {
	r := newRig(t)
	d := r.open("")
	before := d.Stats()
	r.check(d.WriteAt(make([]byte, 8192), 0))
	r.check(d.ReadAt(make([]byte, 100), 4096))
	r.check(d.Zero(0, 1<<20))
	after := d.Stats()
	if w, rd := after.WrittenBytes-before.WrittenBytes, after.ReadBytes-before.ReadBytes; w != 8192 || rd != 100 {
		t.Errorf("wrote %d and read %d bytes, want 8192 and 100", w, rd)
	}
}
