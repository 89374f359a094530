package model_test

import (
	"math"
	"testing"

	"github.com/billethq/billet/internal/model"
)

func TestSize_ShortForPeople(t *testing.T) {
	for n, want := range map[model.Size]string{
		0: "0 B", 1: "1 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.5 KiB", 64 << 20: "64 MiB", 16 << 30: "16 GiB", 3 << 39: "1.5 TiB",
		1<<30 - 1: "1024 MiB", 5000 << 40: "5000 TiB", -1: "-1 B", -(3 << 30): "-3 GiB", math.MaxInt64: "8388608 TiB",
	} {
		if got := n.String(); got != want {
			t.Errorf("%d: got %q, want %q", int64(n), got, want)
		}
	}
}
