package gvisor

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"syscall"

	"github.com/billethq/billet/internal/errs"
)

// exitStatus asks the sandbox for its PID 1's exit code. It blocks until PID 1
// has ended; a sandbox that ends in any other way hangs up.
//
// It speaks runsc's control protocol, one JSON object each way, because the
// other way to ask is a `runsc wait` that stays for as long as the guest: 3 MiB
// of memory for every idle guest. Should a later runsc answer differently, the
// code is unknown and nothing else is lost.
func (g guest) exitStatus(ctx context.Context) (int, error) {
	// Through a descriptor, because a socket's path has 107 bytes at most.
	dir, err := os.Open(g.dir.path(stateDir))
	if err != nil {
		return unknownCode, err
	}
	defer dir.Close()
	path := fmt.Sprintf("/proc/self/fd/%d/runsc-%s.sock", dir.Fd(), containerID)
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return unknownCode, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()

	call := struct {
		Method string `json:"method"`
		Arg    string `json:"arg"`
	}{"containerManager.Wait", containerID}
	if err := json.NewEncoder(conn).Encode(call); err != nil {
		return unknownCode, err
	}
	var answer struct {
		Success bool               `json:"success"`
		Err     string             `json:"err"`
		Result  syscall.WaitStatus `json:"result"`
	}
	if err := json.NewDecoder(conn).Decode(&answer); err != nil {
		return unknownCode, err
	}
	if !answer.Success {
		return unknownCode, errs.New(errs.Internal, "the sandbox answers: %s", answer.Err)
	}
	if answer.Result.Signaled() {
		return 128 + int(answer.Result.Signal()), nil
	}
	return answer.Result.ExitStatus(), nil
}
