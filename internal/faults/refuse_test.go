//go:build failpoint

package faults

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/model"
)

// refuses wants a role to end by itself with an error of a kind, that says
// something, and what to do.
func refuses(t *testing.T, r *role, kind, says string) {
	t.Helper()
	r.start()
	code, said := r.wait(), r.said()
	_, hint, _ := strings.Cut(said, "\nhint: ")
	hint, _, _ = strings.Cut(hint, "\n")
	if code != 1 || !strings.Contains(said, "kind: "+kind+"\n") || !strings.Contains(said, says) || hint == "" {
		t.Errorf("%s ended with code %d and said:\n%s\nwant code 1, kind %s, %q and a hint", r.id, code, said, kind, says)
	}
	r.cmd = nil
}

// TestRefuse_SecondOnOneDirectory: whoever comes second on a state directory
// is refused, and the first does not notice.
// invariant 7
func TestRefuse_SecondOnOneDirectory(t *testing.T) {
	t.Parallel()
	w := deploy(t, options{})
	w.create("one")
	for _, first := range []*role{w.server, w.gateway, w.node} {
		second := *first
		second.id = first.id + "-again"
		refuses(t, &second, "conflict", "in use")
	}
	up := *w.server
	up.name, up.id = roleUp, "up"
	refuses(t, &up, "conflict", "in use")
	w.write("one", "a")
	w.holds("one")
	w.close()
}

// TestRefuse_DamagedLedger: a server on a damaged ledger does not start, says
// what to do and leaves the file as it is. What runs, runs on.
// invariants 6, 7
func TestRefuse_DamagedLedger(t *testing.T) {
	t.Parallel()
	w := deploy(t, options{})
	w.create("one")
	w.write("one", "a")
	pid := w.sandboxPID()
	w.server.stop()
	file := filepath.Join(w.server.cfg.ServerDir(), "ledger.db")
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const page = 4096
	for name, damage := range map[string][]byte{
		"overwritten": slices.Concat(whole[:2*page], bytes.Repeat([]byte{0xff}, page), whole[3*page:]),
		"cut":         whole[:len(whole)/2],
		"empty":       {},
		"other":       []byte("this is no ledger"),
	} {
		if err := os.WriteFile(file, damage, 0o600); err != nil {
			t.Fatal(err)
		}
		r := *w.server
		r.id = "server-" + name
		refuses(t, &r, "internal", "ledger")
		if after, err := os.ReadFile(file); err != nil || !bytes.Equal(after, damage) {
			t.Errorf("%s: the file has changed, %v", name, err)
		}
	}
	if err := os.WriteFile(file, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	w.server.start()
	w.awaitNode(w.node)
	if got := w.sandboxPID(); got != pid {
		t.Errorf("the guest is process %d, was %d", got, pid)
	}
	w.holds("one")
	w.close()
}

// TestRefuse_NodeToken: a node that the server does not know gets nowhere, and
// is told why.
func TestRefuse_NodeToken(t *testing.T) {
	t.Parallel()
	w := deploy(t, options{})
	none := w.newNode("none", nil)
	refuses(t, none, "unauthenticated", "token")

	user, err := w.client.CreateToken(t.Context(), api.CreateTokenRequest{Name: "somebody", Role: model.RoleUser})
	if err != nil {
		t.Fatal(err)
	}
	for name, secret := range map[string]string{"unknown": "blt_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "users": string(user.Secret)} {
		n := w.newNode(name, nil)
		if err := os.MkdirAll(n.cfg.NodeDir(), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(n.cfg.NodeTokenFile(), []byte(secret), 0o600); err != nil {
			t.Fatal(err)
		}
		n.start()
		await(t, name+": the refusal is told", func() error {
			if said := n.said(); !strings.Contains(said, "refuses this node") || !strings.Contains(said, "hint=") {
				return errNotYet
			}
			return n.running()
		})
		n.stop()
	}
	nodes, err := w.client.Nodes(t.Context())
	if err != nil || len(nodes) != 1 {
		t.Errorf("nodes %+v, %v; want only the one with a node's token", nodes, err)
	}
	w.close()
}
