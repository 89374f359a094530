package blob

import (
	"strings"

	"github.com/billethq/billet/internal/errs"
)

// MaxKeyBytes bounds a key.
const MaxKeyBytes = 512

// CheckKey refuses a key that is not as the package comment says. Every
// adapter calls it before anything else.
func CheckKey(key string) error {
	if err := checkCharacters(key); err != nil {
		return err
	}
	for seg := range strings.SplitSeq(key, "/") {
		if seg == "" || seg == "." || seg == ".." {
			return errs.New(errs.Invalid, "object key %q has the segment %q", key, seg)
		}
	}
	return nil
}

// CheckPrefix refuses a prefix that no key can have. Its last segment may be
// cut short or empty.
func CheckPrefix(prefix string) error {
	dir, _, ok := cutLast(prefix)
	if ok {
		if err := CheckKey(dir); err != nil {
			return err
		}
	}
	return checkCharacters(prefix)
}

// CheckBody refuses an object that is too large.
func CheckBody(key string, body []byte) error {
	if len(body) > MaxObjectBytes {
		return errs.New(errs.Invalid, "object %s has %d bytes, at most %d are allowed", key, len(body), MaxObjectBytes)
	}
	return nil
}

func checkCharacters(key string) error {
	if len(key) > MaxKeyBytes {
		return errs.New(errs.Invalid, "object key of %d bytes, at most %d are allowed", len(key), MaxKeyBytes)
	}
	for i := range len(key) {
		c := key[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-', c == '/':
		default:
			return errs.New(errs.Invalid, "object key %q has the byte %#02x", key, c)
		}
	}
	return nil
}

func cutLast(prefix string) (dir, rest string, ok bool) {
	i := strings.LastIndexByte(prefix, '/')
	if i < 0 {
		return "", prefix, false
	}
	return prefix[:i], prefix[i+1:], true
}
