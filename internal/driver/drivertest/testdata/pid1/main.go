// Command pid1 is the PID 1 of the guests that the conformance suite starts.
//
// It dials the side socket and obeys: one JSON request a line, one JSON reply
// a line. It keeps dialling for ever, so that a test can leave and come back.
package main

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/guest/guestpath"
)

// request is one command; reply is what it gave.
type request struct {
	Op   string `json:"op"`
	Arg  string `json:"arg"`
	Text string `json:"text"`
	N    int    `json:"n"`
}

type reply struct {
	Text string `json:"text"`
	Err  string `json:"err"`
}

func main() {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "sleep":
			time.Sleep(time.Hour)
		case "bomb":
			bomb()
		case "euid":
			fmt.Printf("euid %d", os.Geteuid())
		}
		return
	}
	if words, err := os.ReadFile("/end_at_once"); err == nil {
		fmt.Fprint(os.Stderr, string(words))
		os.Exit(7)
	}
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	go func() {
		<-term
		os.Exit(0)
	}()
	redial := make(chan os.Signal, 1)
	signal.Notify(redial, syscall.SIGUSR1)
	for {
		conn, err := net.Dial("unix", filepath.Join(guestpath.SideDir, guestpath.AgentSocket))
		if err != nil {
			time.Sleep(5 * time.Millisecond)
			continue
		}
		served := make(chan struct{})
		go func() {
			defer close(served)
			serve(conn)
		}()
		select {
		case <-served:
		case <-redial: // the host's end has gone unnoticed
		}
		conn.Close()
		<-served
	}
}

func serve(conn net.Conn) {
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		var r request
		var a reply
		err := json.Unmarshal(lines.Bytes(), &r)
		if err == nil {
			a.Text, err = do(r)
		}
		if err != nil {
			a.Err = err.Error()
		}
		if json.NewEncoder(conn).Encode(a) != nil {
			return
		}
	}
}

// What is kept from being collected.
var (
	held  [][]byte
	files []*os.File
)

// counted is state that lives in memory alone.
var counted int

func do(r request) (string, error) {
	switch r.Op {
	case "ping":
		return "pong", nil
	case "count":
		counted++
		return strconv.Itoa(counted), nil
	case "clock":
		return strconv.FormatInt(time.Now().UnixNano(), 10), nil
	case "random":
		b := make([]byte, 16)
		_, err := unix.Getrandom(b, 0)
		return hex.EncodeToString(b), err
	case "unlink": // of a file that is held open
		return "", os.Remove(r.Arg)
	case "read_held": // the last of them, from its beginning
		b, err := io.ReadAll(io.NewSectionReader(files[len(files)-1], 0, 1<<20))
		return string(b), err
	case "exit":
		fmt.Fprint(os.Stderr, r.Text)
		os.Exit(r.N)
	case "bomb":
		bomb()
	case "crash_gvisor":
		// afs_syscall: panics a gVisor that was started to do so.
		_, _, errno := syscall.RawSyscall(183, 0, 0, 0)
		return "", errno
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		return "", nil
	case "read":
		b, err := os.ReadFile(r.Arg)
		return string(b), err
	case "write":
		return "", os.WriteFile(r.Arg, []byte(r.Text), 0o644)
	case "write_and_hold": // and keep it open
		f, err := os.Create(r.Arg)
		if err != nil {
			return "", err
		}
		files = append(files, f)
		_, err = f.WriteString(r.Text)
		return "", err
	case "cpus":
		return strconv.Itoa(runtime.NumCPU()), nil
	case "hostname":
		return os.Hostname()
	case "open_files":
		var l syscall.Rlimit
		err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l)
		return strconv.FormatUint(l.Cur, 10), err
	case "interfaces":
		return interfaces()
	case "whoami":
		return fmt.Sprintf("pid %d uid %d", os.Getpid(), os.Getuid()), nil
	case "as_user": // run Arg as user 1000
		cmd := exec.Command(r.Arg, "euid")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000}}
		out, err := cmd.Output()
		return string(out), err
	case "memory": // N MiB, touched
		for range r.N {
			b := make([]byte, 1<<20)
			for i := 0; i < len(b); i += 4096 {
				b[i] = 1
			}
			held = append(held, b)
		}
		return "", nil
	case "processes": // N of them, sleeping
		for i := range r.N {
			if err := exec.Command(guestpath.Binary, "sleep").Start(); err != nil {
				return "", fmt.Errorf("process %d: %w", i, err)
			}
		}
		return "", nil
	}
	return "", errors.New("unknown operation " + r.Op)
}

// bomb forks for ever, and so do its children.
func bomb() {
	for {
		_ = exec.Command(guestpath.Binary, "bomb").Start()
	}
}

func interfaces() (string, error) {
	all, err := net.Interfaces()
	var names []string
	for _, i := range all {
		names = append(names, i.Name)
	}
	return strings.Join(names, " "), err
}
