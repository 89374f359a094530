package cli

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/atomicfile"
	"github.com/billethq/billet/internal/errs"
)

// maxKeyBytes bounds a public key file; that of a 16384 bit RSA key is 3 KiB.
const maxKeyBytes = 16 << 10

// publicKeys are where OpenSSH's client keeps public keys, in the order in
// which billet looks for one.
func publicKeys() []string { return []string{"id_ed25519.pub", "id_ecdsa.pub", "id_rsa.pub"} }

func (a *app) sshKey() *cobra.Command {
	return group("ssh-key", "Work with the public keys that open your workspaces by SSH", a.sshKeyAdd(), a.sshKeyLs(), a.sshKeyRm())
}

func (a *app) sshKeyAdd() *cobra.Command {
	var req api.AddSSHKeyRequest
	c := &cobra.Command{
		Use: "add [FILE]", Short: "Let a public key open your workspaces",
		Long: `Let a public key open your workspaces. FILE is the key's .pub file, or - for standard
input; without it, it is the first of ~/.ssh/id_ed25519.pub, id_ecdsa.pub and id_rsa.pub.`,
		Args: arguments(0, 1),
	}
	c.Flags().StringVar(&req.Name, "name", "", "what to call it; default: the key's comment")
	json := jsonFlag(c)
	c.RunE = a.calling(func(ctx context.Context, client *api.Client, args []string) error {
		var err error
		if _, req.PublicKey, err = a.publicKey(args); err != nil {
			return err
		}
		k, err := client.AddSSHKey(ctx, req)
		if err != nil {
			return err
		}
		if *json {
			return a.printJSON(k)
		}
		return a.line(k.Fingerprint + " " + plain(k.Name))
	})
	return c
}

func (a *app) sshKeyLs() *cobra.Command {
	c := &cobra.Command{Use: "ls", Short: "List public keys: your own, an admin everybody's", Args: arguments(0, 0)}
	header := []string{"NAME", "PRINCIPAL", "AGE", "FINGERPRINT"}
	return listing(a, c, header, plainly((*api.Client).SSHKeys), func(now time.Time, k api.SSHKey) []string {
		return []string{k.Name, k.Principal, age(now, k.Created), k.Fingerprint}
	})
}

func (a *app) sshKeyRm() *cobra.Command {
	return &cobra.Command{
		Use: "rm NAME", Short: "Take a public key away; connections that are open end at the loss of their road",
		Args: arguments(1, 1), ValidArgsFunction: first(a.sshKeyNames()),
		RunE: a.calling(func(ctx context.Context, c *api.Client, args []string) error { return c.RemoveSSHKey(ctx, args[0]) }),
	}
}

func (a *app) sshKeyNames() completion {
	return names(a, (*api.Client).SSHKeys, func(k api.SSHKey) (string, string) { return k.Name, k.Fingerprint })
}

func (a *app) sshCert() *cobra.Command {
	var req api.SSHCertificateRequest
	c := &cobra.Command{
		Use: "ssh-cert [FILE]", Short: "Make a certificate that opens your workspaces by SSH for a while",
		Long: `Make a certificate that opens your workspaces by SSH for a while, and put it beside the
key, where ssh looks for it. FILE is the key's .pub file; without it, it is the first of
~/.ssh/id_ed25519.pub, id_ecdsa.pub and id_rsa.pub. Nothing revokes a certificate.`,
		Args: arguments(0, 1),
	}
	c.Flags().StringVar(&req.ValidFor, "for", "", "how long it opens anything, at most 24h; default: 1h")
	json := jsonFlag(c)
	c.RunE = a.calling(func(ctx context.Context, client *api.Client, args []string) error {
		if len(args) == 1 && args[0] == "-" {
			return errs.New(errs.Invalid, "a certificate goes beside its key's file").WithHint("name the .pub file")
		}
		path, key, err := a.publicKey(args)
		if err != nil {
			return err
		}
		req.PublicKey = key
		cert, err := client.SignSSH(ctx, req)
		if err != nil {
			return err
		}
		path = strings.TrimSuffix(path, ".pub") + "-cert.pub"
		if err := atomicfile.Write(path, []byte(cert.Certificate+"\n"), 0o644); err != nil {
			return errs.Wrap(errs.Denied, err, "write the certificate")
		}
		if *json {
			return a.printJSON(cert)
		}
		a.note("it opens your workspaces until %s", cert.Expires.Local().Format(time.RFC1123))
		return a.line(path)
	})
	return c
}

// sshDir is where OpenSSH's client keeps its files.
func sshDir() (string, error) {
	home, err := os.UserHomeDir()
	return filepath.Join(home, ".ssh"), errs.Wrap(errs.NotFound, err, "find the home directory")
}

// publicKey reads the key that the arguments name, or the usual one.
func (a *app) publicKey(args []string) (path, key string, err error) {
	if len(args) == 1 && args[0] == "-" {
		text, err := io.ReadAll(io.LimitReader(a.In, maxKeyBytes))
		return "-", string(text), errs.Wrap(errs.Invalid, err, "read the key")
	}
	if len(args) == 1 {
		path = args[0]
	} else if path, err = usualKey(); err != nil {
		return "", "", err
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", "", errs.New(errs.NotFound, "there is no file %s", path).WithHint("make a key with: ssh-keygen -t ed25519")
	case err == nil && (info.IsDir() || info.Size() > maxKeyBytes):
		return "", "", errs.New(errs.Invalid, "%s is no public key", path).WithHint("name the file that ends in .pub")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", "", errs.Wrap(errs.Denied, err, "read the key")
	}
	// It would go to the server, and into its log of refused requests.
	if strings.Contains(string(text), "PRIVATE KEY") {
		return "", "", errs.New(errs.Invalid, "%s is a private key", path).WithHint("name the file that ends in .pub")
	}
	return path, strings.TrimSpace(string(text)), nil
}

func usualKey() (string, error) {
	dir, err := sshDir()
	if err != nil {
		return "", err
	}
	for _, name := range publicKeys() {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", errs.New(errs.NotFound, "there is no public key in %s", dir).WithHint("make one with: ssh-keygen -t ed25519")
}
