package daemon

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/billethq/billet/internal/testenv"
)

// freePort is a port that nothing listens on, here or in the guest.
func freePort(t *testing.T) string {
	t.Helper()
	_, port, err := net.SplitHostPort(freeAddr(t))
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// says dials until somebody answers with the text.
func says(t *testing.T, network, address, want string) {
	t.Helper()
	testenv.Await(t, 30*time.Second, func() error {
		c, err := net.Dial(network, address)
		if err != nil {
			return err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		got, err := io.ReadAll(c)
		if string(got) != want {
			return fmt.Errorf("%s says %q, %v, want %q", address, got, err, want)
		}
		return nil
	})
}

func TestSSH_Forwards(t *testing.T) {
	_, h := sshWorld(t)
	start := func(args ...string) {
		t.Helper()
		cmd := h.command("ssh", args...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	}
	start("one@gate", "while true; do echo from the guest | nc -l -p 8080; done")
	t.Run("to a port", func(t *testing.T) {
		port := freePort(t)
		start("-N", "-o", "ExitOnForwardFailure=yes", "-L", port+":127.0.0.1:8080", "one@gate")
		says(t, "tcp", "127.0.0.1:"+port, "from the guest\n")
	})
	t.Run("dynamic", func(t *testing.T) {
		port := freePort(t)
		start("-N", "-D", port, "one@gate")
		testenv.Await(t, 30*time.Second, func() error {
			c, err := net.Dial("tcp", "127.0.0.1:"+port)
			if err != nil {
				return err
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(5 * time.Second))
			// SOCKS 5: no authentication; connect to 127.0.0.1:8080.
			_, _ = c.Write([]byte{5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1, 8080 >> 8, 8080 & 255})
			got, err := io.ReadAll(c)
			if !strings.HasSuffix(string(got), "from the guest\n") {
				return fmt.Errorf("got %q, %v", got, err)
			}
			return nil
		})
	})
	t.Run("back", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = io.WriteString(c, "from outside\n")
				_ = c.Close()
			}
		}()
		start("-N", "-o", "ExitOnForwardFailure=yes", "-R", "9090:"+l.Addr().String(), "one@gate")
		testenv.Await(t, 30*time.Second, func() error {
			out, errOut, _ := h.ssh("", "one@gate", "nc 127.0.0.1 9090 </dev/null")
			if out != "from outside\n" {
				return fmt.Errorf("got %q, %s", out, errOut)
			}
			return nil
		})
		// And to a socket, by a listener of ssh's own in the guest.
		start("-N", "-o", "ExitOnForwardFailure=yes", "-R", "/tmp/back.sock:"+l.Addr().String(), "one@gate")
		sock := h.path("sock")
		start("-N", "-L", sock+":/tmp/back.sock", "one@gate")
		says(t, "unix", sock, "from outside\n")
	})
	t.Run("agent", func(t *testing.T) {
		agent := exec.Command(testenv.NeedBinary(t, "ssh-agent"), "-D", "-a", h.path("agent"))
		if err := agent.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = agent.Process.Kill(); _ = agent.Wait() }()
		testenv.Await(t, 10*time.Second, func() error { _, err := os.Stat(h.path("agent")); return err })
		cmd := h.command("ssh", "-A", "-o", "IdentityAgent="+h.path("agent"), "one@gate", `test -S "$SSH_AUTH_SOCK" && ls -ld "${SSH_AUTH_SOCK%/*}"`)
		out, errOut, code := h.run("", cmd)
		if code != 0 || !strings.HasPrefix(out, "drwx------") {
			t.Errorf("got %q, code %d, %s", out, code, errOut)
		}
	})
}
