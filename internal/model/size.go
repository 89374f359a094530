package model

import (
	"fmt"
	"strconv"
	"strings"
)

// Size is a number of bytes as people read it: in the unit that keeps it short.
// Messages use it; what a program reads has bytes.
type Size int64

// String writes the size with at most one decimal, such as 64 MiB or 1.5 GiB.
func (s Size) String() string {
	const unit = 1024
	if s < 0 {
		return "-" + (-s).String()
	}
	if s < unit {
		return strconv.FormatInt(int64(s), 10) + " B"
	}
	units := []string{"KiB", "MiB", "GiB", "TiB"}
	v, i := float64(s)/unit, 0
	for v >= unit && i < len(units)-1 {
		v, i = v/unit, i+1
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0") + " " + units[i]
}
