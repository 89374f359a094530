// Command demo runs billet's main job for real and says what it did and how
// long it took: a Debian image built, a workspace made, this repository with
// its modules and the Go toolchain copied in, the guest agent built from
// source in the sandbox without a network, the workspace stopped, its node's
// whole local state deleted, the workspace brought back from the object store
// alone, and the program that was built run.
//
// It runs the binaries of build/ as a person would, in a state directory of
// its own, which it removes at the end.
package main

import (
	"bufio"
	"context"
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
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		stop()
		os.Exit(1)
	}
}

// step is one line of the closing table.
type step struct {
	what string
	took time.Duration
	note string
}

type demo struct {
	ctx   context.Context
	repo  string
	state string
	bin   string
	up    *exec.Cmd
	steps []step
}

func run(ctx context.Context) (err error) {
	repo, err := os.Getwd()
	if err != nil {
		return err
	}
	state, err := os.MkdirTemp("/var/tmp", "billet-demo-")
	if err != nil {
		return err
	}
	d := &demo{ctx: ctx, repo: repo, state: state, bin: filepath.Join(repo, "build", "billet")}
	defer func() { err = errors.Join(err, d.clean()) }()
	if err := d.configure(); err != nil {
		return err
	}
	for _, act := range []func() error{d.bringUp, d.create, d.copyIn, d.build, d.stop, d.loseHost, d.bringBack} {
		if err := act(); err != nil {
			return err
		}
	}
	return d.report()
}

const workspace = "demo"

// configure writes a configuration with ports that are free now and a tier
// that a Go build fits in.
func (d *demo) configure() error {
	addr := func() string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "127.0.0.1:0"
		}
		defer l.Close()
		return l.Addr().String()
	}
	text := fmt.Sprintf(`state: %s
api: {listen: "%s"}
gateway: {listen: "%s", ssh: "off", http: "off"}
tiers:
  - {name: build, vcpus: %d, memory: 4GiB, disk: 16GiB}
`, d.state, addr(), addr(), max(2, runtime.NumCPU()))
	return os.WriteFile(d.config(), []byte(text), 0o600)
}

func (d *demo) config() string { return filepath.Join(d.state, "billet.yaml") }

// timed runs fn and notes how long it took.
func (d *demo) timed(what string, fn func() (note string, err error)) error {
	fmt.Printf("== %s\n", what)
	began := time.Now()
	note, err := fn()
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	d.steps = append(d.steps, step{what, time.Since(began), note})
	return nil
}

// start starts `billet up` and waits for a line that begins with word.
func (d *demo) start(word string) error {
	d.up = exec.Command(d.bin, "up", "--config", d.config())
	log, err := os.OpenFile(filepath.Join(d.state, "up.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	d.up.Stderr = log
	out, err := d.up.StdoutPipe()
	if err != nil {
		return err
	}
	if err := d.up.Start(); err != nil {
		return err
	}
	ready := make(chan error, 1)
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			fmt.Println("   ", lines.Text())
			if strings.HasPrefix(lines.Text(), word) {
				ready <- nil
			}
		}
		ready <- fmt.Errorf("billet up has ended; its log: %s", tail(log.Name()))
	}()
	select {
	case err := <-ready:
		return err
	case <-d.ctx.Done():
		return d.ctx.Err()
	case <-time.After(15 * time.Minute):
		return errors.New("billet up is not ready after 15 minutes")
	}
}

func tail(path string) string {
	b, _ := os.ReadFile(path)
	return string(b[max(0, len(b)-4000):])
}

// billet runs one verb and returns what it printed.
func (d *demo) billet(stdin io.Reader, args ...string) (string, error) {
	fmt.Println("    $ billet", strings.Join(args, " "))
	cmd := exec.CommandContext(d.ctx, d.bin, append([]string{"--config", d.config()}, args...)...)
	cmd.Stdin = stdin
	var errOut strings.Builder
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("billet %s: %w\n%s%s", args[0], err, out, errOut.String())
	}
	return string(out), nil
}

func (d *demo) bringUp() error {
	return d.timed("billet up, which builds a Debian image", func() (string, error) {
		if err := d.start("ready"); err != nil {
			return "", err
		}
		var img struct {
			UsedBytes   int64 `json:"used_bytes"`
			StoredBytes int64 `json:"stored_bytes"`
		}
		out, err := d.billet(nil, "image", "show", "base", "--json")
		if err != nil {
			return "", err
		}
		err = json.Unmarshal([]byte(out), &img)
		return fmt.Sprintf("%d MiB, %d MiB stored", img.UsedBytes>>20, img.StoredBytes>>20), err
	})
}

func (d *demo) create() error {
	err := d.timed("a workspace created", func() (string, error) {
		_, err := d.billet(nil, "ws", "create", workspace)
		return "until it can be entered", err
	})
	if err != nil {
		return err
	}
	return d.timed("the first command in it", func() (string, error) {
		out, err := d.billet(nil, "ws", "exec", workspace, "--", "sh", "-c", "id -un; uname -sr; sudo id -un; cat /proc/net/dev | grep -c eth || true")
		return strings.Join(strings.Fields(out), " "), err
	})
}

// copyIn copies a vendored copy of this repository and the toolchain.
func (d *demo) copyIn() error {
	src := filepath.Join(d.state, "src")
	err := d.timed("this repository with its modules gathered", func() (string, error) {
		script := `mkdir -p "$1" && git ls-files -z | xargs -0 tar -cf - | tar -xf - -C "$1" && cd "$1" && go mod vendor`
		cmd := exec.CommandContext(d.ctx, "bash", "-c", script, "demo", src)
		cmd.Dir = d.repo
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%w\n%s", err, out)
		}
		return size(src)
	})
	if err != nil {
		return err
	}
	err = d.timed("repository copied in", func() (string, error) {
		_, err := d.billet(nil, "ws", "cp", src, workspace+":src")
		return "", err
	})
	if err != nil {
		return err
	}
	return d.timed("Go toolchain copied in", func() (string, error) {
		root, err := exec.CommandContext(d.ctx, "go", "env", "GOROOT").Output()
		if err != nil {
			return "", err
		}
		goroot := strings.TrimSpace(string(root))
		note, err := size(goroot)
		if err != nil {
			return "", err
		}
		_, err = d.billet(nil, "ws", "cp", goroot, workspace+":go")
		return note, err
	})
}

func size(dir string) (string, error) {
	var n int64
	var files int
	err := filepath.Walk(dir, func(_ string, fi os.FileInfo, err error) error {
		if err == nil && fi.Mode().IsRegular() {
			n += fi.Size()
			files++
		}
		return err
	})
	return fmt.Sprintf("%d files, %d MiB", files, n>>20), err
}

// buildScript builds the guest agent where there is no network to help.
const buildScript = `cd ~/src && CGO_ENABLED=0 GOTOOLCHAIN=local GOFLAGS=-mod=vendor GOPROXY=off ~/go/bin/go build -trimpath -o ~/billet-guest ./cmd/billet-guest && ~/billet-guest version && sync`

func (d *demo) build() error {
	return d.timed("billet-guest built from source in the sandbox", func() (string, error) {
		out, err := d.billet(nil, "ws", "exec", workspace, "--", "sh", "-c", buildScript)
		return strings.TrimSpace(out), err
	})
}

// snapshots sums up what the workspace has stored so far.
func (d *demo) snapshots() (stored, written int64, n int, err error) {
	out, err := d.billet(nil, "ws", "snapshots", workspace, "--json")
	if err != nil {
		return 0, 0, 0, err
	}
	var list struct {
		Items []struct {
			StoredBytes  int64 `json:"stored_bytes"`
			WrittenBytes int64 `json:"written_bytes"`
		} `json:"items"`
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		return 0, 0, 0, err
	}
	for _, s := range list.Items {
		stored += s.StoredBytes
		written += s.WrittenBytes
	}
	return stored, written, len(list.Items), nil
}

func (d *demo) stop() error {
	return d.timed("workspace stopped, everything durable", func() (string, error) {
		if _, err := d.billet(nil, "ws", "stop", workspace); err != nil {
			return "", err
		}
		stored, written, n, err := d.snapshots()
		return fmt.Sprintf("%d MiB written, %d MiB stored, %d snapshots", written>>20, stored>>20, n), err
	})
}

// loseHost ends billet and deletes all that its node keeps.
func (d *demo) loseHost() error {
	return d.timed("the host lost: node state deleted", func() (string, error) {
		if err := d.endUp(); err != nil {
			return "", err
		}
		note, err := size(filepath.Join(d.state, "node"))
		if err != nil {
			return "", err
		}
		return note + " deleted", os.RemoveAll(filepath.Join(d.state, "node"))
	})
}

func (d *demo) bringBack() error {
	err := d.timed("billet up again", func() (string, error) { return "", d.start("ready") })
	if err != nil {
		return err
	}
	err = d.timed("workspace started from the object store", func() (string, error) {
		_, err := d.billet(nil, "ws", "start", workspace)
		return "until it can be entered", err
	})
	if err != nil {
		return err
	}
	return d.timed("the program that was built, run", func() (string, error) {
		out, err := d.billet(nil, "ws", "exec", workspace, "--", "sh", "-c", "~/billet-guest version")
		return strings.TrimSpace(out), err
	})
}

func (d *demo) endUp() error {
	if d.up == nil || d.up.Process == nil {
		return nil
	}
	_ = d.up.Process.Signal(syscall.SIGTERM)
	err := d.up.Wait()
	d.up = nil
	return err
}

// clean removes the workspace, ends billet, and removes the state.
func (d *demo) clean() error {
	if d.up != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		d.ctx = ctx
		_, err := d.billet(nil, "ws", "rm", workspace, "--force")
		if err := errors.Join(err, d.endUp()); err != nil && len(d.steps) > 1 {
			return err
		}
	}
	return os.RemoveAll(d.state)
}

func (d *demo) report() error {
	fmt.Println()
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "STEP\tSECONDS\tWHAT")
	var total time.Duration
	for _, s := range d.steps {
		fmt.Fprintf(w, "%s\t%8.2f\t%s\n", s.what, s.took.Seconds(), s.note)
		total += s.took
	}
	fmt.Fprintf(w, "together\t%8.2f\t\n", total.Seconds())
	return w.Flush()
}
