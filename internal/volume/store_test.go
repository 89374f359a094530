package volume

import (
	"errors"
	"testing"
)

func wantCorrupt(t *testing.T, err error, block int64, key string) {
	t.Helper()
	var c *CorruptError
	if !errors.As(err, &c) {
		t.Errorf("error = %v, want a CorruptError", err)
		return
	}
	if c.Block != block || c.Key != key || c.Why == "" {
		t.Errorf("error = %+v, want block %d, key %s and a reason", *c, block, key)
	}
}
