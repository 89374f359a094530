package ext4

import (
	"testing"

	"github.com/billethq/billet/internal/errs"
)

func TestCheckSize_SaysSizesAsPeopleWriteThem(t *testing.T) {
	for size, want := range map[int64]string{
		MinBytes: "", MaxBytes: "", 16 << 30: "",
		64 << 20:      "a disk of 64 MiB is impossible",
		2 << 40:       "a disk of 2 TiB is impossible",
		0:             "a disk of 0 B is impossible",
		200<<20 + 512: "a disk of 209715712 bytes is impossible",
	} {
		err := CheckSize(size)
		switch {
		case want == "" && err != nil:
			t.Errorf("%d: %v", size, err)
		case want != "" && (!errs.Is(err, errs.Invalid) || err.Error() != want || errs.HintOf(err) != "choose whole MiB between 128 MiB and 1 TiB"):
			t.Errorf("%d: got %v (hint %q), want %s", size, err, errs.HintOf(err), want)
		}
	}
}
