package mcp

import (
	"bytes"
	"context"
	"encoding/base64"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/guest/execclient"
)

const (
	// maxOutput is how much of each output stream a call returns: its end, where
	// the reason for a failure is.
	maxOutput = 64 << 10
	// maxFile bounds a file that is read or written as one message.
	maxFile = 4 << 20
	// defaultTimeout and maxTimeout bound a command: an agent waits for it.
	defaultTimeout = 2 * time.Minute
	maxTimeout     = time.Hour
	// killGrace is between SIGTERM and SIGKILL for one that has outlived them.
	killGrace = 2 * time.Second
)

type execArgs struct {
	Workspace string `json:"workspace" jsonschema:"its name"`
	Command   string `json:"command" jsonschema:"run by sh -c"`
	Cwd       string `json:"cwd,omitempty" jsonschema:"without it the user's home"`
	User      string `json:"user,omitempty" jsonschema:"without it the workspace's own"`
	Stdin     string `json:"stdin,omitempty"`
	Timeout   int    `json:"timeout_seconds,omitempty" jsonschema:"120 unless said, 3600 at most"`
}

type execResult struct {
	ExitCode  int    `json:"exit_code"`
	Stdout    string `json:"stdout"`
	Stderr    string `json:"stderr"`
	Truncated bool   `json:"truncated,omitempty" jsonschema:"only the end of the output is here"`
	TimedOut  bool   `json:"timed_out,omitempty" jsonschema:"it was killed"`
}

func (s *server) exec(ctx context.Context, _ *sdk.CallToolRequest, in execArgs) (*sdk.CallToolResult, execResult, error) {
	timeout := defaultTimeout
	if in.Timeout != 0 {
		timeout = time.Duration(in.Timeout) * time.Second
	}
	switch {
	case in.Command == "":
		return nil, execResult{}, errs.New(errs.Invalid, "command is missing")
	case timeout <= 0 || timeout > maxTimeout:
		return nil, execResult{}, errs.New(errs.Invalid, "timeout_seconds is %d (choose 1 to %d)", in.Timeout, int(maxTimeout/time.Second))
	}
	guest, err := s.enter(ctx, in.Workspace)
	if err != nil {
		return nil, execResult{}, told(err)
	}
	stdout, stderr := &tail{max: maxOutput}, &tail{max: maxOutput}
	cmd := execclient.Command{Args: []string{"sh", "-c", in.Command}, Cwd: in.Cwd, User: in.User, Stdout: stdout, Stderr: stderr}
	if in.Stdin != "" {
		cmd.Stdin = strings.NewReader(in.Stdin)
	}
	code, late, err := runFor(ctx, guest, cmd, timeout)
	if err != nil {
		return nil, execResult{}, told(err)
	}
	return nil, execResult{
		ExitCode: code, Stdout: stdout.String(), Stderr: stderr.String(), Truncated: stdout.cut || stderr.cut, TimedOut: late,
	}, nil
}

// runFor runs a command and ends it when it takes longer, or when its caller has
// gone: nobody would look after it.
func runFor(ctx context.Context, guest *execclient.Client, cmd execclient.Command, timeout time.Duration) (code int, late bool, err error) {
	limit, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	signals := make(chan syscall.Signal, 2)
	cmd.Signals = signals
	ended := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-ended:
			return
		case <-limit.Done():
		}
		late = true
		signals <- syscall.SIGTERM
		select {
		case <-ended:
		case <-time.After(killGrace):
			signals <- syscall.SIGKILL
		}
	}()
	// Not by ctx: that would leave the command behind.
	run, stop := context.WithTimeout(context.WithoutCancel(ctx), timeout+10*killGrace)
	defer stop()
	code, err = guest.Run(run, cmd)
	close(ended)
	<-watched
	return code, late, err
}

type readArgs struct {
	Workspace string `json:"workspace" jsonschema:"its name"`
	Path      string `json:"path" jsonschema:"relative ones begin at the user's home"`
	User      string `json:"user,omitempty" jsonschema:"who reads it; without it the workspace's own"`
}

type readResult struct {
	Content  string `json:"content"`
	Encoding string `json:"encoding" jsonschema:"text or base64"`
	Size     int    `json:"size"`
}

func (s *server) read(ctx context.Context, _ *sdk.CallToolRequest, in readArgs) (*sdk.CallToolResult, readResult, error) {
	if err := checkPath(in.Path); err != nil {
		return nil, readResult{}, err
	}
	guest, err := s.enter(ctx, in.Workspace)
	if err != nil {
		return nil, readResult{}, told(err)
	}
	// One byte more than is wanted tells that there is more.
	body, err := s.run(ctx, guest, in.User, nil, `exec head -c "$2" -- "$1"`, in.Path, strconv.Itoa(maxFile+1))
	if err != nil {
		return nil, readResult{}, told(err)
	}
	if len(body) > maxFile {
		return nil, readResult{}, errs.New(errs.Invalid, "%s has more than %d bytes (read a part of it with exec: head, tail, dd)", in.Path, maxFile)
	}
	if utf8.Valid(body) && !bytes.ContainsRune(body, 0) {
		return nil, readResult{Content: string(body), Encoding: "text", Size: len(body)}, nil
	}
	return nil, readResult{Content: base64.StdEncoding.EncodeToString(body), Encoding: "base64", Size: len(body)}, nil
}

type writeArgs struct {
	Workspace string `json:"workspace" jsonschema:"its name"`
	Path      string `json:"path" jsonschema:"relative ones begin at the user's home"`
	Content   string `json:"content"`
	Encoding  string `json:"encoding,omitempty" jsonschema:"text (unless said) or base64"`
	User      string `json:"user,omitempty" jsonschema:"whose file it is; without it the workspace's own"`
}

type writeResult struct {
	Size int `json:"size"`
}

func (s *server) write(ctx context.Context, _ *sdk.CallToolRequest, in writeArgs) (*sdk.CallToolResult, writeResult, error) {
	if err := checkPath(in.Path); err != nil {
		return nil, writeResult{}, err
	}
	body := []byte(in.Content)
	switch in.Encoding {
	case "", "text":
	case "base64":
		var err error
		if body, err = base64.StdEncoding.DecodeString(in.Content); err != nil {
			return nil, writeResult{}, errs.New(errs.Invalid, "content is not base64: %v", err)
		}
	default:
		return nil, writeResult{}, errs.New(errs.Invalid, "encoding %q is neither text nor base64", in.Encoding)
	}
	if len(body) > maxFile {
		return nil, writeResult{}, errs.New(errs.Invalid, "content has %d bytes, at most %d are taken", len(body), maxFile)
	}
	guest, err := s.enter(ctx, in.Workspace)
	if err != nil {
		return nil, writeResult{}, told(err)
	}
	// Beside it first: a write that is cut off leaves the old file.
	const script = `set -e; mkdir -p -- "$(dirname -- "$1")"; t="$1.billet-$$"; trap 'rm -f -- "$t"' EXIT; cat > "$t"; mv -f -- "$t" "$1"; trap - EXIT`
	if _, err := s.run(ctx, guest, in.User, body, script, in.Path); err != nil {
		return nil, writeResult{}, told(err)
	}
	return nil, writeResult{Size: len(body)}, nil
}

func checkPath(path string) error {
	if path == "" || strings.ContainsRune(path, 0) {
		return errs.New(errs.Invalid, "path %q names no file", path)
	}
	return nil
}

// run executes a small script of our own, which takes its words as arguments,
// and returns its output; what it says on standard error is the error.
func (s *server) run(ctx context.Context, guest *execclient.Client, user string, stdin []byte, script string, args ...string) ([]byte, error) {
	var stdout bytes.Buffer
	stderr := &tail{max: 1 << 10}
	cmd := execclient.Command{Args: append([]string{"sh", "-c", script, "billet"}, args...), User: user, Stdout: &stdout, Stderr: stderr, Stdin: bytes.NewReader(stdin)}
	code, _, err := runFor(ctx, guest, cmd, defaultTimeout)
	if err == nil && code != 0 {
		err = errs.New(errs.Invalid, "%s", strings.TrimSpace(stderr.String()))
	}
	return stdout.Bytes(), err
}

// tail keeps the end of what is written to it.
type tail struct {
	buf []byte
	max int
	cut bool
}

func (t *tail) Write(p []byte) (int, error) {
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - t.max; over > 0 {
		t.buf, t.cut = append(t.buf[:0], t.buf[over:]...), true
	}
	return len(p), nil
}

func (t *tail) String() string { return strings.ToValidUTF8(string(t.buf), "\uFFFD") }
