package userfs

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/errs"
)

const (
	// metadataPrefix is where the contract keeps metadata, among a file's
	// extended attributes.
	metadataPrefix = "user.e2b."
	// MaxMetadataKey and MaxMetadata bound one key and everything, prefixes
	// included, as the contract does: what an attribute's name and an ext4 inode
	// can hold.
	MaxMetadataKey = 255 - len(metadataPrefix)
	MaxMetadata    = 4096
	// maxAttrs bounds the list of a file's attribute names, at the kernel's limit.
	maxAttrs = 64 << 10
)

// CheckMetadata refuses metadata that the contract refuses.
func CheckMetadata(m map[string]string) error {
	total := 0
	for k, v := range m {
		if k == "" || len(k) > MaxMetadataKey {
			return errs.New(errs.Invalid, "metadata key %q: 1 to %d bytes are allowed", shorten(k), MaxMetadataKey)
		}
		if !printable(k) || !printable(v) {
			return errs.New(errs.Invalid, "metadata %q: only printable ASCII is allowed", shorten(k))
		}
		total += len(metadataPrefix) + len(k) + len(v)
	}
	if total > MaxMetadata {
		return errs.New(errs.Invalid, "metadata: %d bytes, more than %d", total, MaxMetadata)
	}
	return nil
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return false
		}
	}
	return true
}

// setMetadata makes m all the metadata of an open file.
func setMetadata(fd int, m map[string]string) error {
	for _, attr := range attrs(fd) {
		if _, stays := m[strings.TrimPrefix(attr, metadataPrefix)]; !stays {
			if err := unix.Fremovexattr(fd, attr); err != nil && err != unix.ENODATA {
				return err
			}
		}
	}
	for k, v := range m {
		if err := unix.Fsetxattr(fd, metadataPrefix+k, []byte(v), 0); err != nil {
			return err
		}
	}
	return nil
}

// metadataAt is the metadata of a file or directory, nil where it has none or
// the user may not read it.
func metadataAt(at place) map[string]string {
	fd, err := unix.Openat(at.dir, at.name, openRead, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	return metadata(fd)
}

func metadata(fd int) map[string]string {
	var m map[string]string
	for _, attr := range attrs(fd) {
		buf := make([]byte, MaxMetadata)
		n, err := unix.Fgetxattr(fd, attr, buf)
		if err != nil {
			continue
		}
		if m == nil {
			m = make(map[string]string)
		}
		m[strings.TrimPrefix(attr, metadataPrefix)] = string(buf[:n])
	}
	return m
}

// attrs are the names of the attributes that hold metadata.
func attrs(fd int) []string {
	n, err := unix.Flistxattr(fd, nil)
	if err != nil || n <= 0 {
		return nil
	}
	buf := make([]byte, min(n+os.Getpagesize(), maxAttrs)) // more may come meanwhile
	if n, err = unix.Flistxattr(fd, buf); err != nil {
		return nil
	}
	var all []string
	for _, name := range strings.Split(string(buf[:n]), "\x00") {
		if strings.HasPrefix(name, metadataPrefix) && name != metadataPrefix {
			all = append(all, name)
		}
	}
	return all
}
