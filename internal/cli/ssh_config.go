package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/atomicfile"
	"github.com/billethq/billet/internal/errs"
)

// The files of OpenSSH's client that billet writes. All but the first are its
// own, and of that only one line is.
const (
	sshConfigFile  = "config"
	sshBilletFile  = "billet.config"
	sshTrustedFile = "billet.known_hosts"
	// includeLine comes first: below a Host line it would hold for that host only.
	includeLine = "Include ~/.ssh/" + sshBilletFile + "\n"
	// madeConfig notes in billet's file that there was no config before.
	madeConfig = "# There was no ~/.ssh/config before.\n"
)

func (a *app) sshConfig() *cobra.Command {
	var yes, remove bool
	var gateway, key string
	c := &cobra.Command{
		Use: "ssh-config", Short: "Have ssh know your workspaces as NAME.billet",
		Long: `Have ssh, and every editor that uses it, know your workspaces as NAME.billet. It writes
~/.ssh/billet.config and billet.known_hosts, and one line into ~/.ssh/config that includes
them; it shows what would change and asks first. Run it again for new workspaces.`,
		Args: arguments(0, 0),
	}
	f := c.Flags()
	f.BoolVarP(&yes, "yes", "y", false, "do not ask")
	f.BoolVar(&remove, "remove", false, "take everything away again")
	f.StringVar(&gateway, "gateway", "", "host:port of the gateway's SSH server; default: what the server says")
	f.StringVar(&key, "key", "", "private key to offer; default: what ssh offers anyway")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		dir, err := sshDir()
		if err != nil {
			return err
		}
		if remove {
			return a.changeSSH(dir, removal, yes)
		}
		return a.calling(func(ctx context.Context, client *api.Client, _ []string) error {
			want, err := sshWanted(ctx, client, gateway, key)
			if err != nil {
				return err
			}
			return a.changeSSH(dir, func(has sshFiles) sshFiles { return want.in(has) }, yes)
		})(cmd, args)
	}
	return c
}

// sshFiles are the files by their names; those that are not there are missing.
type sshFiles map[string]string

// sshFileNames in the order in which they are written: what is included comes
// before the line that includes it.
func sshFileNames() []string { return []string{sshTrustedFile, sshBilletFile, sshConfigFile} }

// wanted is what billet's own files shall say.
type wanted struct{ hosts, trusted string }

func sshWanted(ctx context.Context, c *api.Client, gateway, key string) (wanted, error) {
	info, err := c.SSH(ctx)
	if err != nil {
		return wanted{}, err
	}
	host, port, err := net.SplitHostPort(orElse(gateway, info.Listen))
	if err != nil {
		return wanted{}, errs.New(errs.Unavailable, "the deployment has no SSH server").WithHint("set gateway.ssh in the server's configuration, or name one with --gateway HOST:PORT")
	}
	all, err := c.Workspaces(ctx)
	if err != nil {
		return wanted{}, err
	}
	var b strings.Builder
	b.WriteString("# Written by billet ssh-config, which writes it anew; --remove takes it away.\n")
	for _, ws := range all {
		fmt.Fprintf(&b, "Host %s.billet\n    User %s\n", ws.Name, ws.Name)
	}
	fmt.Fprintf(&b, "Host *.billet\n    HostName %s\n    Port %s\n    HostKeyAlias %s\n    UserKnownHostsFile ~/.ssh/%s\n", host, port, info.HostAlias, sshTrustedFile)
	b.WriteString("    StrictHostKeyChecking yes\n    ServerAliveInterval 15\n    ServerAliveCountMax 4\n")
	if key != "" {
		abs, err := filepath.Abs(key)
		if err != nil {
			return wanted{}, errs.Wrap(errs.Invalid, err, "find the key")
		}
		// What is beside it as KEY-cert.pub is offered too.
		fmt.Fprintf(&b, "    IdentityFile %q\n    IdentitiesOnly yes\n", abs)
	}
	return wanted{hosts: b.String(), trusted: "@cert-authority " + info.HostAlias + " " + info.HostAuthority + "\n"}, nil
}

// in returns the files as they shall be.
func (w wanted) in(has sshFiles) sshFiles {
	out := sshFiles{sshTrustedFile: w.trusted, sshBilletFile: w.hosts, sshConfigFile: has[sshConfigFile]}
	if _, there := has[sshConfigFile]; !there || strings.HasSuffix(has[sshBilletFile], madeConfig) {
		out[sshBilletFile] += madeConfig
	}
	if !strings.HasPrefix(out[sshConfigFile], includeLine) {
		out[sshConfigFile] = includeLine + out[sshConfigFile]
	}
	return out
}

// removal returns the files as they were before.
func removal(has sshFiles) sshFiles {
	out := sshFiles{}
	if config, there := has[sshConfigFile]; there {
		rest := strings.Replace("\n"+config, "\n"+includeLine, "\n", 1)[1:]
		if rest != "" || !strings.HasSuffix(has[sshBilletFile], madeConfig) {
			out[sshConfigFile] = rest
		}
	}
	return out
}

// changeSSH shows what would change, asks, and changes it.
func (a *app) changeSSH(dir string, change func(sshFiles) sshFiles, yes bool) error {
	has := sshFiles{}
	for _, name := range sshFileNames() {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			has[name] = string(text)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return errs.Wrap(errs.Denied, err, "read the configuration of ssh")
		}
	}
	want := change(has)
	changes := 0
	for _, name := range sshFileNames() {
		if differ(has, want, name) {
			changes++
			a.showChange(filepath.Join(dir, name), has[name], want[name])
		}
	}
	if changes == 0 {
		a.note("nothing to change")
		return nil
	}
	if !yes {
		if err := a.confirm("change these files?"); err != nil {
			return err
		}
	}
	return writeSSH(dir, has, want)
}

func differ(a, b sshFiles, name string) bool {
	x, inA := a[name]
	y, inB := b[name]
	return inA != inB || x != y
}

// showChange prints the lines that go and come, without those around them.
func (a *app) showChange(path, old, now string) {
	before, after := strings.SplitAfter(old, "\n"), strings.SplitAfter(now, "\n")
	for len(before) > 0 && len(after) > 0 && before[len(before)-1] == after[len(after)-1] {
		before, after = before[:len(before)-1], after[:len(after)-1]
	}
	for len(before) > 0 && len(after) > 0 && before[0] == after[0] {
		before, after = before[1:], after[1:]
	}
	a.note("%s", path)
	a.showLines("-", before)
	a.showLines("+", after)
}

func (a *app) showLines(sign string, lines []string) {
	for _, line := range lines {
		if line != "" {
			a.note("  %s %s", sign, strings.TrimSuffix(line, "\n"))
		}
	}
}

// confirm asks a person.
func (a *app) confirm(question string) error {
	if _, ok := terminal(a.In); !ok {
		return errs.New(errs.Invalid, "standard input is no terminal to ask on").WithHint("say --yes to change the files")
	}
	fmt.Fprintf(a.Err, "%s [y/N] ", question)
	answer, _ := bufio.NewReader(a.In).ReadString('\n')
	if s := strings.ToLower(strings.TrimSpace(answer)); s != "y" && s != "yes" {
		return errs.New(errs.Denied, "nothing was changed")
	}
	return nil
}

// writeSSH writes the files, and removes those that are not wanted. A removal
// begins with the line that includes the others.
func writeSSH(dir string, has, want sshFiles) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return errs.Wrap(errs.Denied, err, "create %s", dir)
	}
	names := sshFileNames()
	if _, kept := want[sshBilletFile]; !kept {
		names[0], names[2] = names[2], names[0]
	}
	for _, name := range names {
		if !differ(has, want, name) {
			continue
		}
		if err := writeOne(filepath.Join(dir, name), want, name); err != nil {
			return errs.Wrap(errs.Denied, err, "change %s", name)
		}
	}
	return nil
}

// writeOne keeps the mode of a file, and the link that it may be.
func writeOne(path string, want sshFiles, name string) error {
	text, wanted := want[name]
	if !wanted {
		return os.Remove(path)
	}
	mode := fs.FileMode(0o600)
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
		if info, err := os.Stat(real); err == nil {
			mode = info.Mode().Perm()
		}
	}
	return atomicfile.Write(path, []byte(text), mode)
}
