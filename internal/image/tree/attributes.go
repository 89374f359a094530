package tree

import (
	"archive/tar"
	"slices"
	"strings"
)

// Bounds of what an inode can hold.
const (
	// maxDevice is the kernel's: 12 bits of major and 20 of minor number.
	maxMajor, maxMinor = 1<<12 - 1, 1<<20 - 1
	// maxXattrBytes of one file fit its inode and one block beside it.
	maxXattrBytes = 3500
)

// Seconds that an ext4 time can hold.
const (
	minSeconds = -1 << 31
	maxSeconds = 1<<34 - 1<<31 - 1
)

// attributes returns a node of h's owner, permissions, time, device number and
// extended attributes, without a type.
func attributes(h *tar.Header) (*Node, error) {
	if h.Uid < 0 || h.Gid < 0 || int64(h.Uid) > 1<<32-2 || int64(h.Gid) > 1<<32-2 {
		return nil, invalid(h.Name, "has the impossible owner %d:%d", h.Uid, h.Gid)
	}
	if h.Devmajor < 0 || h.Devmajor > maxMajor || h.Devminor < 0 || h.Devminor > maxMinor {
		return nil, invalid(h.Name, "has the impossible device number %d:%d", h.Devmajor, h.Devminor)
	}
	xattrs, err := xattrsOf(h)
	if err != nil {
		return nil, err
	}
	return &Node{
		Mode:    uint32(h.Mode & 0o7777),
		UID:     uint32(h.Uid),
		GID:     uint32(h.Gid),
		ModTime: timeOf(h),
		Major:   uint32(h.Devmajor),
		Minor:   uint32(h.Devminor),
		Xattrs:  xattrs,
	}, nil
}

func timeOf(h *tar.Header) Time {
	if h.ModTime.IsZero() {
		return Time{}
	}
	sec := h.ModTime.Unix()
	if sec < minSeconds || sec > maxSeconds {
		return Time{Sec: min(max(sec, minSeconds), maxSeconds)}
	}
	return Time{Sec: sec, Nsec: int32(h.ModTime.Nanosecond())}
}

const paxXattr = "SCHILY.xattr."

// xattrsOf leaves out what belongs to the host the archive was made on: the
// labels of its security modules and the marks of its overlay file system.
func xattrsOf(h *tar.Header) ([]Xattr, error) {
	var out []Xattr
	total := 0
	for key, value := range h.PAXRecords {
		name, ok := strings.CutPrefix(key, paxXattr)
		if !ok || !KeptXattr(name) {
			continue
		}
		if strings.IndexByte(name, 0) >= 0 || len(name) > maxComponent {
			return nil, invalid(h.Name, "has an extended attribute with the impossible name %s", quote(name))
		}
		total += len(name) + len(value) + 20
		out = append(out, Xattr{Name: name, Value: []byte(value)})
	}
	if total > maxXattrBytes {
		return nil, invalid(h.Name, "has %d bytes of extended attributes, at most %d are possible", total, maxXattrBytes)
	}
	slices.SortFunc(out, func(a, b Xattr) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// KeptXattr reports whether an extended attribute is part of an image.
func KeptXattr(name string) bool {
	switch {
	case name == "security.capability", name == "system.posix_acl_access", name == "system.posix_acl_default":
		return true
	case strings.HasPrefix(name, "trusted.overlay."):
		return false
	}
	return strings.HasPrefix(name, "user.") || strings.HasPrefix(name, "trusted.")
}
