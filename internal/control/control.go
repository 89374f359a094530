// Package control is the control plane: it keeps records of what should be,
// hands each node its part, and moves what differs.
package control

import (
	"context"
	"crypto/ed25519"
	"log/slog"
	"sync"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

// Config is what the control plane needs.
type Config struct {
	Ledger     ledger.Ledger
	Secrets    *Secrets
	Tiers      []model.Tier
	Gateways   []api.Gateway
	SSHListen  string          // where the gateway's SSH server is, for clients' configurations; "" is nowhere
	APIURL     string          // where the API is over TCP, for clients that are told
	Entrance   EntranceAddress // zero: no links into ports
	FlushEvery time.Duration
	StopGrace  time.Duration
	Memory     MemoryPolicy
	Clock      clock.Clock
	Log        *slog.Logger
	Version    string
}

// leasePeriod is how long a lease lasts after its node was last heard; a node
// syncs at least every syncHold, a third of it.
const (
	leasePeriod = 60 * time.Second
	syncHold    = leasePeriod / 3
)

// Control implements api.Service and api.Plane over a ledger.
type Control struct {
	cfg        Config
	deployment ledger.Deployment
	signer     ed25519.PrivateKey
	began      time.Time
	changed    *signal

	mu      sync.Mutex
	nodes   map[model.NodeID]*nodeView     // what nodes said, were told, and when they were heard
	flushes map[model.InstanceID]flushWish // flushes that were asked for
	waiting map[model.WorkspaceID]string   // why a wanted start has no instance yet
	due     time.Time                      // the next deadline of terms; zero: none
	used    map[string]time.Time           // tickets of links, until they expire
	// expected are the nodes of the server before this one that have not called yet.
	expected map[model.NodeID]bool
}

var (
	_ api.Plane    = (*Control)(nil)
	_ api.SSHPlane = (*Control)(nil)
	_ api.Service  = (*Control)(nil)
	_ api.Entrance = (*Control)(nil)
)

// New opens the deployment in the ledger.
func New(ctx context.Context, cfg Config) (*Control, error) {
	switch {
	case cfg.Ledger == nil || cfg.Secrets == nil || cfg.Clock == nil || cfg.Log == nil:
		return nil, errs.New(errs.Internal, "control: ledger, secrets, clock and log are needed")
	case len(cfg.Tiers) == 0:
		return nil, errs.New(errs.Invalid, "no tier is configured").WithHint("add one under tiers: in the configuration")
	}
	now := cfg.Clock.Now()
	d, err := cfg.Ledger.EnsureDeployment(ctx, ledger.Meta{Now: now}, model.NewID())
	if err != nil {
		return nil, err
	}
	if err := checkSecrets(ctx, cfg); err != nil {
		return nil, err
	}
	signer, err := cfg.Secrets.TicketKey()
	if err != nil {
		return nil, err
	}
	nodes, err := cfg.Ledger.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	return &Control{
		cfg: cfg, deployment: d, signer: signer, began: now, changed: newSignal(),
		nodes:   map[model.NodeID]*nodeView{},
		flushes: map[model.InstanceID]flushWish{},
		waiting: map[model.WorkspaceID]string{},
		used:    map[string]time.Time{},

		expected: expect(nodes),
	}, nil
}

// checkSecrets refuses to make new keys for a deployment that has stored
// something under others: everything would seem to work and nothing could be
// read.
func checkSecrets(ctx context.Context, cfg Config) error {
	lost := cfg.Secrets.missing()
	if lost == "" {
		return nil
	}
	if some, err := stored(ctx, cfg.Ledger); err != nil || !some {
		return err
	}
	return errs.New(errs.Internal, "key %s is gone, and what is stored cannot be read without it", lost).
		WithHint("restore the secrets directory from a backup; a new deployment needs a new --state directory")
}

// stored reports whether the ledger names anything in the object store.
func stored(ctx context.Context, l ledger.Ledger) (bool, error) {
	images, err := l.Images(ctx, ledger.AllTenants)
	if err != nil {
		return false, err
	}
	workspaces, err := l.Workspaces(ctx, ledger.AllTenants)
	return len(images)+len(workspaces) > 0, err
}

// localName is the name of the principal that has no token and never loses its
// role.
const localName = "local"

// Local is the principal of whoever may open the deployment's Unix socket.
func (c *Control) Local(ctx context.Context) (model.Principal, error) {
	return c.cfg.Ledger.EnsurePrincipal(ctx, c.meta(""), model.Principal{
		ID: model.PrincipalID(model.NewID()), Tenant: model.DefaultTenant, Region: model.DefaultRegion,
		Name: localName, Class: model.ClassHuman, Role: model.RoleAdmin, Created: c.cfg.Clock.Now(),
	})
}

// TicketKey verifies the tickets that this deployment signs.
func (c *Control) TicketKey() ed25519.PublicKey { return c.signer.Public().(ed25519.PublicKey) }

// Info describes the deployment.
func (c *Control) Info(ctx context.Context) (api.Info, error) {
	some, err := stored(ctx, c.cfg.Ledger)
	return api.Info{
		Version: c.cfg.Version, APIVersion: api.Version, Deployment: c.deployment.ID, TicketKey: c.TicketKey(), Stored: some, API: c.cfg.APIURL,
	}, err
}

func (c *Control) meta(actor model.PrincipalID) ledger.Meta {
	return ledger.Meta{Now: c.cfg.Clock.Now(), Actor: actor}
}

// signal wakes everybody who waits for a change. It carries nothing: who wakes
// reads the present state.
type signal struct {
	mu sync.Mutex
	ch chan struct{}
}

func newSignal() *signal { return &signal{ch: make(chan struct{})} }

// next returns a channel that is closed at the next broadcast. Take it before
// reading the state, so that a change in between is not missed.
func (s *signal) next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ch
}

func (s *signal) broadcast() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.ch)
	s.ch = make(chan struct{})
}
