package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// units of sizes, longest suffix first. Only the binary ones: a "GB" that is
// read as a GiB, or the other way round, is a disk of the wrong size.
var units = []struct {
	suffix string
	bytes  int64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
}

// ParseSize reads a size such as "16GiB" or "512 MiB"; a whole number without
// a unit counts bytes. It refuses negative and fractional sizes and such as do
// not fit.
func ParseSize(s string) (int64, error) {
	number, factor := strings.TrimSpace(s), int64(1)
	for _, u := range units {
		if rest, ok := strings.CutSuffix(number, u.suffix); ok {
			number, factor = strings.TrimSpace(rest), u.bytes
			break
		}
	}
	n, err := strconv.ParseUint(number, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("%q is not a size such as 16GiB", s)
	}
	if int64(n) > math.MaxInt64/factor {
		return 0, fmt.Errorf("%q is too large", s)
	}
	return int64(n) * factor, nil
}

// FormatSize writes n in the largest unit that keeps it exact.
func FormatSize(n int64) string {
	for _, u := range units {
		if n != 0 && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.suffix
		}
	}
	return strconv.FormatInt(n, 10)
}

// parseDuration reads a duration such as "5m" or "1h30m".
func parseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(strings.TrimSpace(s))
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration such as 5m", s)
	}
	return d, nil
}
