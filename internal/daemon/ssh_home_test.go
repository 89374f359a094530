package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/testenv"
)

// sshHome is the directory of a person with OpenSSH's client.
type sshHome struct {
	t   *testing.T
	d   *deployment
	dir string
}

// newSSHHome makes a key and a configuration, and tells billet of the key.
func newSSHHome(t *testing.T, d *deployment) *sshHome {
	t.Helper()
	h := &sshHome{t: t, d: d, dir: t.TempDir()}
	h.key("id")
	if _, err := d.client.AddSSHKey(t.Context(), api.AddSSHKeyRequest{Name: filepath.Base(h.dir), PublicKey: h.read("id.pub")}); err != nil {
		t.Fatal(err)
	}
	h.configure("id", "")
	return h
}

func (h *sshHome) path(name string) string { return filepath.Join(h.dir, name) }

func (h *sshHome) read(name string) string {
	h.t.Helper()
	b, err := os.ReadFile(h.path(name))
	if err != nil {
		h.t.Fatal(err)
	}
	return string(b)
}

func (h *sshHome) write(name, text string) {
	h.t.Helper()
	if err := os.WriteFile(h.path(name), []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

func (h *sshHome) key(name string) {
	h.t.Helper()
	out, err := exec.Command(testenv.NeedBinary(h.t, "ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", h.path(name)).CombinedOutput()
	if err != nil {
		h.t.Fatalf("ssh-keygen: %v %s", err, out)
	}
}

// configure has ssh know the deployment's host authority and nothing else.
func (h *sshHome) configure(key, cert string) {
	h.t.Helper()
	info, err := h.d.client.SSH(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	host, port, err := net.SplitHostPort(info.Listen)
	if err != nil {
		h.t.Fatal(err)
	}
	h.write("known", "@cert-authority "+info.HostAlias+" "+info.HostAuthority+"\n")
	text := fmt.Sprintf("Host *\nHostName %s\nPort %s\nHostKeyAlias %s\nUserKnownHostsFile %s\nStrictHostKeyChecking yes\nIdentitiesOnly yes\nIdentityAgent none\nIdentityFile %s\nBatchMode yes\nControlPath %s\n",
		host, port, info.HostAlias, h.path("known"), h.path(key), h.path("mux"))
	if cert != "" {
		text += "CertificateFile " + h.path(cert) + "\n"
	}
	h.write("config", text)
}

// command is ssh, or one of its kin, with the configuration.
func (h *sshHome) command(program string, args ...string) *exec.Cmd {
	h.t.Helper()
	cmd := exec.Command(testenv.NeedBinary(h.t, program), append([]string{"-F", h.path("config")}, args...)...)
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// ssh runs a command of ssh's to its end.
func (h *sshHome) ssh(stdin string, args ...string) (stdout, stderr string, code int) {
	h.t.Helper()
	return h.run(stdin, h.command("ssh", args...))
}

func (h *sshHome) run(stdin string, cmd *exec.Cmd) (stdout, stderr string, code int) {
	h.t.Helper()
	var out, errOut bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errOut
	stop := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Kill() })
	defer stop.Stop()
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		h.t.Fatalf("%s: %v", cmd.Args, err)
	}
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
}

// want runs ssh and wants its standard output, and success.
func (h *sshHome) want(want string, args ...string) {
	h.t.Helper()
	if out, errOut, code := h.ssh("", args...); out != want || code != 0 {
		h.t.Errorf("ssh %q: got %q, code %d, stderr %q, want %q", args, out, code, errOut, want)
	}
}

// screen is a terminal with ssh on it.
type screen struct {
	t    *testing.T
	cmd  *exec.Cmd
	pty  *os.File
	more chan []byte
	seen string
}

func (h *sshHome) screen(args ...string) *screen {
	h.t.Helper()
	cmd := h.command("ssh", args...)
	cmd.Env = append(os.Environ(), "TERM=vt100", "LANG=C.UTF-8")
	f, err := pty.StartWithSize(cmd, &pty.Winsize{Cols: 101, Rows: 33})
	if err != nil {
		h.t.Fatal(err)
	}
	s := &screen{t: h.t, cmd: cmd, pty: f, more: make(chan []byte, 64)}
	go func() {
		defer close(s.more)
		for {
			buf := make([]byte, 4<<10)
			n, err := f.Read(buf)
			if n > 0 {
				s.more <- buf[:n]
			}
			if err != nil {
				return
			}
		}
	}()
	h.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = f.Close(); _ = cmd.Wait() })
	return s
}

func (s *screen) enter(text string) {
	s.t.Helper()
	if _, err := io.WriteString(s.pty, text); err != nil {
		s.t.Fatal(err)
	}
}

// until reads until text comes, and drops what was before it.
func (s *screen) until(text string) {
	s.t.Helper()
	late := time.After(60 * time.Second)
	for {
		if i := strings.Index(s.seen, text); i >= 0 {
			s.seen = s.seen[i+len(text):]
			return
		}
		select {
		case b, ok := <-s.more:
			if !ok {
				s.t.Fatalf("ssh ended before %q; the screen has %q", text, s.seen)
			}
			s.seen += string(b)
		case <-late:
			s.t.Fatalf("%q did not come; the screen has %q", text, s.seen)
		}
	}
}

// sshWorld is a deployment with one workspace and a person who may enter it.
func sshWorld(t *testing.T) (*deployment, *sshHome) {
	t.Helper()
	testenv.NeedRoot(t)
	testenv.NeedFUSE(t)
	testenv.NeedLoop(t)
	testenv.NeedBinary(t, "ssh")
	testenv.LeakCheck(t)
	d := up(t, home(t))
	t.Cleanup(func() {
		_ = d.client.DeleteWorkspace(context.Background(), "one", true)
		testenv.Await(t, 60*time.Second, func() error {
			all, err := d.client.Workspaces(context.Background())
			if err == nil && len(all) > 0 {
				err = errors.New("a workspace is still there")
			}
			return err
		})
		d.down()
	})
	d.image("base")
	if _, err := d.client.CreateWorkspace(t.Context(), "", api.CreateWorkspaceRequest{Name: "one"}); err != nil {
		t.Fatal(err)
	}
	d.until("one", api.WorkspaceRunning)
	return d, newSSHHome(t, d)
}
