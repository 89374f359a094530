package gvisor

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/model"
)

// findMachine describes this host and the runsc on it.
func findMachine(runsc string) (model.Machine, error) {
	sum, err := fileSHA256(runsc)
	if err != nil {
		return model.Machine{}, err
	}
	cpu, features, err := readProcessor("/proc/cpuinfo")
	if err != nil {
		return model.Machine{}, err
	}
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return model.Machine{}, fmt.Errorf("ask for the kernel's release: %w", err)
	}
	return model.Machine{
		Driver: model.DriverGVisor, Binary: sum, CPUModel: cpu, CPUFeatures: features,
		HostKernel: unix.ByteSliceToString(uts.Release[:]),
	}, nil
}

func fileSHA256(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// readProcessor returns the model and the features of the first processor. The
// names of the lines are x86's and Arm's.
func readProcessor(path string) (name, features string, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", "", err
	}
	first, _, _ := strings.Cut(string(text), "\n\n")
	for line := range strings.Lines(first) {
		key, value, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(key) {
		case "model name", "CPU part":
			name = strings.TrimSpace(value)
		case "flags", "Features":
			names := strings.Fields(value)
			slices.Sort(names)
			features = strings.Join(names, " ")
		}
	}
	if features == "" {
		return "", "", fmt.Errorf("%s names no processor features", path)
	}
	return name, features, nil
}
