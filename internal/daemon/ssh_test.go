package daemon

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/testenv"
)

func TestSSH_Sessions(t *testing.T) {
	_, h := sshWorld(t)
	t.Run("exec", func(t *testing.T) {
		h.want("hello\n", "one@gate", "echo hello")
		out, errOut, code := h.ssh("", "one@gate", "echo out; echo err >&2; exit 7")
		if out != "out\n" || errOut != "err\n" || code != 7 {
			t.Errorf("got %q, %q, code %d", out, errOut, code)
		}
		if _, _, code := h.ssh("", "one@gate", "kill -TERM $$"); code != 255 { // OpenSSH's own word for a signal
			t.Errorf("killed by a signal: code %d", code)
		}
		if _, errOut, code := h.ssh("", "one@gate", "nothing-of-that-name"); code != 127 {
			t.Errorf("unknown command: code %d, %s", code, errOut)
		}
		h.want("C.UTF-8\n", "-o", "SetEnv=LC_ALL=C.UTF-8 LD_PRELOAD=x", "one@gate", "echo $LC_ALL $LD_PRELOAD")
	})
	t.Run("long stdin", func(t *testing.T) {
		in := strings.Repeat("0123456789abcdef", 1<<20)
		want := fmt.Sprintf("%x  -\n", sha256.Sum256([]byte(in)))
		if out, errOut, code := h.ssh(in, "one@gate", "sha256sum"); out != want || code != 0 {
			t.Errorf("got %q, code %d, %s, want %q", out, code, errOut, want)
		}
	})
	t.Run("long stdout", func(t *testing.T) {
		out, errOut, code := h.ssh("", "one@gate", "dd if=/dev/zero bs=1048576 count=16 2>/dev/null")
		if len(out) != 16<<20 || code != 0 {
			t.Errorf("got %d bytes, code %d, %s", len(out), code, errOut)
		}
	})
	t.Run("terminal", func(t *testing.T) {
		s := h.screen("one@gate")
		s.enter("echo size $(stty size) term $TERM lang $LANG\n")
		s.until("size 33 101 term vt100")
		if err := pty.Setsize(s.pty, &pty.Winsize{Cols: 77, Rows: 22}); err != nil {
			t.Fatal(err)
		}
		s.enter("echo size $(stty size)\n")
		s.until("size 22 77")
		s.enter("exit 3\n")
		if err := s.cmd.Wait(); s.cmd.ProcessState.ExitCode() != 3 {
			t.Errorf("the session ended with %v", err)
		}
		if out, _, _ := h.ssh("", "-tt", "one@gate", "test -t 0 && test -t 1 && echo terminal"); out != "terminal\r\n" {
			t.Errorf("command on a terminal: %q", out)
		}
	})
	t.Run("multiplexed", func(t *testing.T) {
		if _, errOut, code := h.ssh("", "-M", "-f", "-N", "one@gate"); code != 0 {
			t.Fatalf("master: code %d, %s", code, errOut)
		}
		for range 3 {
			h.want("again\n", "one@gate", "echo again")
		}
		if _, errOut, code := h.ssh("", "-O", "exit", "one@gate"); code != 0 {
			t.Errorf("exit of the master: code %d, %s", code, errOut)
		}
	})
}

func TestSSH_Files(t *testing.T) {
	_, h := sshWorld(t)
	body := strings.Repeat("line of a file\n", 200_000)
	h.write("big", body)
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(body)))
	inGuest := func(path string) {
		t.Helper()
		h.want(sum+"  "+path+"\n", "one@gate", "sha256sum "+path)
	}
	t.Run("sftp", func(t *testing.T) {
		batch := fmt.Sprintf("put %s /root/by-sftp\nmkdir /root/d\nrename /root/by-sftp /root/d/f\nget /root/d/f %s\nls -l /root/d\n", h.path("big"), h.path("back"))
		cmd := h.command("sftp", "-b", "-", "one@gate")
		if out, errOut, code := h.run(batch, cmd); code != 0 || !strings.Contains(out, "3000000") {
			t.Fatalf("sftp: code %d, %s %s", code, out, errOut)
		}
		inGuest("/root/d/f")
		if h.read("back") != body {
			t.Error("the file came back another")
		}
	})
	t.Run("scp", func(t *testing.T) {
		if _, errOut, code := h.run("", h.command("scp", "-p", h.path("big"), "one@gate:/root/by-scp")); code != 0 {
			t.Fatalf("scp: code %d, %s", code, errOut)
		}
		inGuest("/root/by-scp")
		if _, errOut, code := h.run("", h.command("scp", "one@gate:/root/by-scp", h.path("copy"))); code != 0 || h.read("copy") != body {
			t.Errorf("scp back: code %d, %s", code, errOut)
		}
	})
	t.Run("client that vanishes in a transfer", func(t *testing.T) {
		cmd := h.command("scp", "-l", "400", h.path("big"), "one@gate:/root/endless") // a minute at this rate
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		testenv.Await(t, 30*time.Second, func() error {
			if out, _, _ := h.ssh("", "one@gate", "ls /root/endless"); out == "" {
				return errors.New("the transfer has not begun")
			}
			return nil
		})
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		testenv.Await(t, 30*time.Second, func() error {
			if out, _, _ := h.ssh("", "one@gate", "ps | grep '[b]illet-guest sftp'"); out != "" {
				return errors.New("its server is still there: " + out)
			}
			return nil
		})
	})
}

func TestSSH_WhoMayEnter(t *testing.T) {
	d, h := sshWorld(t)
	refused := func(what, reason string) {
		t.Helper()
		if out, errOut, code := h.ssh("", "one@gate", "echo in"); code != 255 || out != "" || !strings.Contains(errOut, reason) {
			t.Errorf("%s: got %q, code %d, %s, want %q", what, out, code, errOut, reason)
		}
	}
	h.key("other")
	h.configure("other", "")
	refused("a key that nobody has", "Permission denied (publickey)")

	cert := func(valid string) {
		t.Helper()
		c, err := d.client.SignSSH(t.Context(), api.SSHCertificateRequest{PublicKey: h.read("other.pub"), ValidFor: valid})
		if err != nil {
			t.Fatal(err)
		}
		h.write("other-cert.pub", c.Certificate+"\n")
	}
	cert("1h")
	h.configure("other", "other-cert.pub")
	h.want("in\n", "one@gate", "echo in")
	cert("1s")
	testenv.Await(t, 10*time.Second, func() error {
		if _, errOut, code := h.ssh("", "one@gate", "true"); code != 255 || !strings.Contains(errOut, "certificate refused: certificate has expired") && !strings.Contains(errOut, "cert has expired") {
			return fmt.Errorf("an expired certificate: code %d, %s", code, errOut)
		}
		return nil
	})

	h.configure("id", "")
	if out, errOut, code := h.ssh("", "two@gate", "echo in"); code != 255 || out != "" || !strings.Contains(errOut, `workspace "two" is not there`) {
		t.Errorf("a workspace that is not there: %q, code %d, %s", out, code, errOut)
	}
	// The host must show a certificate of this deployment.
	good := h.read("known")
	h.write("known", strings.Replace(good, "AAAAC3", "AAAAC4", 1))
	refused("another host authority", "Host key verification failed")
	h.write("known", good)
	h.want("in\n", "one@gate", "echo in")

	if err := d.client.RemoveSSHKey(t.Context(), filepath.Base(h.dir)); err != nil {
		t.Fatal(err)
	}
	refused("a key that was removed", "Permission denied (publickey)")
}

func TestSSH_TerminalOutlivesItsClient(t *testing.T) {
	_, h := sshWorld(t)
	s := h.screen("one@gate")
	s.enter("mark=kept; echo began$((1+1))\n")
	s.until("began2")
	s.enter("echo begins$((9+9)); sleep 2; echo while-away$((2+2))\n")
	s.until("begins18")
	_ = s.cmd.Process.Kill() // as a laptop that has no network any more
	_ = s.cmd.Wait()

	var again *screen
	testenv.Await(t, 60*time.Second, func() error {
		if out, _, _ := h.ssh("", "one@gate", "ps | grep -c '[s]leep 2'"); strings.TrimSpace(out) != "0" {
			return errors.New("the terminal has not gone on yet")
		}
		return nil
	})
	again = h.screen("one@gate")
	again.until("while-away4") // what was written meanwhile
	again.enter("echo $mark-$((3+3))\n")
	again.until("kept-6")

	// Two at once are two.
	second := h.screen("one@gate")
	second.enter("echo mark=$mark-$((4+4))\n")
	second.until("mark=-8")
	second.enter("exit\n")
	_ = second.cmd.Wait()

	// An orderly end is one: the next is a new shell.
	again.enter("exit\n")
	_ = again.cmd.Wait()
	third := h.screen("one@gate")
	third.enter("echo mark=$mark-$((5+5))\n")
	third.until("mark=-10")
	third.enter("\n~.") // leaves the connection on purpose
	_ = third.cmd.Wait()
	testenv.Await(t, 30*time.Second, func() error {
		if out, _, _ := h.ssh("", "one@gate", "ps | grep '[s]h -l'"); out != "" {
			return errors.New("its shell was not hung up: " + out)
		}
		return nil
	})
}

// A workspace that sleeps is resumed by who connects, and told of.
func TestSSH_ConnectingWakes(t *testing.T) {
	d, h := sshWorld(t)
	if _, err := d.client.StopWorkspace(t.Context(), "one", api.StopWorkspaceRequest{}); err != nil {
		t.Fatal(err)
	}
	d.until("one", api.WorkspaceStopped)
	out, errOut, code := h.ssh("", "one@gate", "echo awake")
	// One that is up at once says nothing (sshd's TestPhases).
	told := errOut == "" || strings.Contains(errOut, "billet: ") && strings.Contains(errOut, "attached ")
	if out != "awake\n" || code != 0 || !told {
		t.Errorf("got %q, code %d, stderr %q", out, code, errOut)
	}
	if _, err := d.client.StopWorkspace(t.Context(), "one", api.StopWorkspaceRequest{Cold: true}); err != nil {
		t.Fatal(err)
	}
	d.until("one", api.WorkspaceStopped)
	out, errOut, code = h.ssh("", "one@gate", "echo awake")
	if out != "" || code != 255 || !strings.Contains(errOut, "hint: start it with: billet ws start one") {
		t.Errorf("stopped for good: got %q, code %d, stderr %q", out, code, errOut)
	}
}

// All roles end and come back while a session runs, and the gateway on the same
// address with the same key: who connects again sees no warning.
func TestSSH_GatewayComesBack(t *testing.T) {
	d, h := sshWorld(t)
	load := h.command("ssh", "one@gate", "yes")
	load.Stdout = io.Discard
	if err := load.Start(); err != nil {
		t.Fatal(err)
	}
	s := h.screen("one@gate")
	s.enter("mark=kept; echo began$((1+1))\n")
	s.until("began2")
	d.down()
	if err := load.Wait(); err == nil {
		t.Error("the session without a terminal ended well")
	}
	_ = s.cmd.Wait()

	*d = *up(t, d.cfg)
	d.until("one", api.WorkspaceRunning)
	testenv.Await(t, 60*time.Second, func() error {
		out, errOut, code := h.ssh("", "one@gate", "echo back")
		if strings.Contains(errOut, "WARNING") || strings.Contains(errOut, "verification failed") {
			t.Fatalf("a warning: %s", errOut)
		}
		if out != "back\n" || code != 0 {
			return fmt.Errorf("got %q, code %d, %s", out, code, errOut)
		}
		return nil
	})
	again := h.screen("one@gate")
	again.enter("echo mark=$mark-$((3+3))\n")
	again.until("mark=kept-6")
	again.enter("exit\n")
	_ = again.cmd.Wait()
}
