package testenv

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// postgresScript makes a database server in $1 with the programs in $2 and
// holds it until its standard input ends, which happens when the test process
// is gone, however it went. The server's data is worth nothing: no fsync, and
// the harshest shutdown.
const postgresScript = `
set -eu
dir=$1 bin=$2
trap 'cd /; rm -rf "$dir"' EXIT
trap '' INT HUP
cd "$dir"
"$bin/initdb" -D data -A trust -U billet -E UTF8 --locale=C.UTF-8 -N >&2
"$bin/postgres" -D data -k "$dir" -c listen_addresses= -c fsync=off -c synchronous_commit=off \
	-c full_page_writes=off -c max_connections=200 -c shared_buffers=32MB >&2 &
server=$!
until "$bin/pg_isready" -q -h "$dir" -d postgres; do
	kill -0 $server
	sleep 0.05
done
touch ready
read -r _ || true
kill -QUIT $server
wait $server || true
`

// postgresStart bounds how long initdb and the server's start may take on a
// busy machine.
const postgresStart = time.Minute

type postgresServer struct {
	dir   string // holds the socket
	bin   string
	hold  io.Closer // the script's standard input: closing it ends the server
	log   *os.File
	count atomic.Int64
}

// postgres is the one server of this test process.
var postgres = sync.OnceValues(startPostgres)

// NeedPostgres returns the DSN of a fresh, empty database on a PostgreSQL
// server that belongs to this test process alone and ends with it. It skips
// where no server is installed.
func NeedPostgres(t testing.TB) string {
	t.Helper()
	NeedRoot(t)
	server, err := postgres()
	var missing *postgresMissingError
	if errors.As(err, &missing) {
		need(t, "postgres", missing.why)
	}
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	name := fmt.Sprintf("test%d", server.count.Add(1))
	text, err := exec.Command(filepath.Join(server.bin, "createdb"), "-h", server.dir, "-U", "billet", name).CombinedOutput()
	if err != nil {
		t.Fatalf("testenv: create database: %v\n%s", err, text)
	}
	return fmt.Sprintf("host=%s user=billet dbname=%s", server.dir, name)
}

// postgresMissingError says that this machine has no PostgreSQL.
type postgresMissingError struct{ why string }

func (e *postgresMissingError) Error() string { return e.why }

func startPostgres() (*postgresServer, error) {
	bins, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	if len(bins) == 0 {
		return nil, &postgresMissingError{"nothing in /usr/lib/postgresql; `make test-deps` installs it"}
	}
	account, err := user.Lookup("postgres")
	if err != nil {
		return nil, &postgresMissingError{err.Error()}
	}
	uid, _ := strconv.ParseUint(account.Uid, 10, 32)
	gid, _ := strconv.ParseUint(account.Gid, 10, 32)
	dir, err := os.MkdirTemp("/tmp", "billet-pg-") // short: a socket's path has at most 107 bytes
	if err != nil {
		return nil, err
	}
	if err := os.Chown(dir, int(uid), int(gid)); err != nil {
		return nil, err
	}
	server := &postgresServer{dir: dir, bin: bins[len(bins)-1]}
	if server.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		return nil, err
	}
	cmd := exec.Command("/bin/sh", "-c", postgresScript, "postgres", dir, server.bin)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8"}
	// Not our own output: go test would wait for its end.
	cmd.Stdout, cmd.Stderr = server.log, server.log
	// A session of its own, so that Ctrl-C reaches the test and not the server.
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true,
		Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)},
	}
	if server.hold, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	return server, server.wait(cmd)
}

// wait returns when the server answers, or with its log when it never will.
func (s *postgresServer) wait(cmd *exec.Cmd) error {
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	deadline := time.NewTimer(postgresStart)
	defer deadline.Stop()
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for {
		if _, err := os.Stat(filepath.Join(s.dir, "ready")); err == nil {
			return nil
		}
		select {
		case err := <-ended:
			return fmt.Errorf("postgres ended: %v\n%s", err, s.text())
		case <-deadline.C:
			text := s.text()
			_ = s.hold.Close()
			return fmt.Errorf("postgres is not ready after %s\n%s", postgresStart, text)
		case <-poll.C:
		}
	}
}

// text returns what the server has said, also after its directory is gone.
func (s *postgresServer) text() []byte {
	text, _ := io.ReadAll(io.NewSectionReader(s.log, 0, 64<<10))
	return text
}
