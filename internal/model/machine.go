package model

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"
)

// Machine is what a memory image is bound to: it is restored by the same
// program on a processor with the same features, or not at all.
type Machine struct {
	Driver      DriverName `json:"driver"`
	Binary      string     `json:"binary"`       // SHA-256 of the driver's program, in hex
	CPUModel    string     `json:"cpu_model"`    // for people
	CPUFeatures string     `json:"cpu_features"` // sorted names, with blanks between
	HostKernel  string     `json:"host_kernel"`  // for people
	// GuestKernel is the digest of the guest's own kernel, "" where the
	// driver's program is that.
	GuestKernel string `json:"guest_kernel,omitempty"`
}

// Fingerprint stands for everything that Refuses compares: equal fingerprints
// can restore each other's memory.
func (m Machine) Fingerprint() string {
	sum := sha256.Sum256([]byte(strings.Join([]string{string(m.Driver), m.Binary, m.CPUFeatures}, "\x00")))
	return hex.EncodeToString(sum[:])
}

// Memory is a memory image that a snapshot has beside its disk. The zero Memory
// is none.
type Memory struct {
	Root    Root
	Machine string    // fingerprint of the machines that can restore it
	Bytes   int64     // of the guest's memory
	Until   time.Time // when it is dropped
}

// Refuses says why memory taken on machine from cannot be restored on m, ""
// when it can.
func (m Machine) Refuses(from Machine) string {
	switch {
	case m.Driver != from.Driver:
		return "the memory is of driver " + string(from.Driver) + ", not " + string(m.Driver)
	case m.Binary != from.Binary:
		return "the memory is of another version of the driver's program"
	case m.CPUFeatures != from.CPUFeatures:
		return "the memory is of a processor with other features (" + from.CPUModel + ")"
	}
	return ""
}
