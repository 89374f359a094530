package server

import (
	"encoding/binary"

	"github.com/billethq/billet/internal/volume"
)

// Of the ext4 superblock: where it lies, and the fields that say in which state
// it was left.
const (
	superAt       = 1024
	superState    = superAt + 0x3a // u16
	superIncompat = superAt + 0x60 // u32

	stateValid  = 0x1 // s_state: unmounted cleanly, or with a journal
	stateErrors = 0x2 // s_state: the kernel met errors

	incompatRecover = 0x4 // the journal has to be replayed
)

// consistency says what the file system on the device is, as it lies there.
// That it was frozen or unmounted proves nothing: one that the kernel has given
// up is unmounted like any other, and its journal stays to be replayed.
func (s *server) consistency() (volume.Consistency, error) {
	page := make([]byte, volume.PageSize)
	if err := s.dev.ReadAt(page, 0); err != nil {
		return "", err
	}
	state := binary.LittleEndian.Uint16(page[superState:])
	replay := binary.LittleEndian.Uint32(page[superIncompat:])&incompatRecover != 0
	if replay || state&stateValid == 0 || state&stateErrors != 0 {
		return volume.Crash, nil
	}
	return volume.Frozen, nil
}

// sealAsIs seals a file system that nothing writes to.
func (s *server) sealAsIs() (bool, error) {
	as, err := s.consistency()
	if err != nil {
		return false, err
	}
	return s.dev.Seal(as)
}
