package cgroup

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// setting is one control file and what to write into it.
type setting struct {
	file, value string
	// optional settings are left out on kernels that have no such file.
	optional bool
}

func write(dir string, settings []setting) error {
	for _, s := range settings {
		// Not os.WriteFile: a control file that is not there must not be made.
		f, err := os.OpenFile(filepath.Join(dir, s.file), os.O_WRONLY, 0)
		if s.optional && errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		_, err = f.WriteString(s.value)
		if err := errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("set %s to %s: %w", s.file, s.value, err)
		}
	}
	return nil
}

func readText(dir, file string) (string, error) {
	b, err := os.ReadFile(filepath.Join(dir, file))
	return strings.TrimSpace(string(b)), err
}

func readNumber(dir, file string) (int64, error) {
	text, err := readText(dir, file)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", file, err)
	}
	return n, nil
}

// readField returns the number after key in a file of lines "key number".
func readField(dir, file, key string) (int64, error) {
	b, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return 0, err
	}
	n, err := parseField(b, key)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", file, err)
	}
	return n, nil
}

func parseField(text []byte, key string) (int64, error) {
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		k, v, _ := strings.Cut(lines.Text(), " ")
		if k != key {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("field %s: %w", key, err)
		}
		return n, nil
	}
	return 0, fmt.Errorf("no field %s", key)
}

// readPIDs reads a cgroup.procs; a group that is not there has none.
func readPIDs(file string) ([]int, error) {
	b, err := os.ReadFile(file)
	// A group that is removed while it is read answers ENODEV.
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, word := range strings.Fields(string(b)) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		// 0 is a process of another process id namespace: not ours to judge.
		if pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// microseconds renders d as control files want it.
func microseconds(us int64) string { return strconv.FormatInt(us, 10) }
