// Package config reads billet's settings: a strict, optional YAML file over
// defaults that need none.
//
// Every mistake in a file is reported at once, each with its line: a person
// who mistyped three keys should not start the server four times.
package config

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// Config is everything a deployment on this machine is told. Sizes are bytes.
type Config struct {
	// State is the directory that holds all state; absolute.
	State string
	// APIListen and GatewayListen are loopback host:port.
	APIListen     string
	GatewayListen string
	// SSHListen is the loopback host:port of the gateway's SSH server; "" is none.
	SSHListen string
	// GatewayTokenFile holds the token with which `billet gateway` calls the
	// server; "" is <state>/gateway/token.
	GatewayTokenFile string
	// EntranceListen is where the gateway serves servers of workspaces, a
	// loopback host:port, and EntranceDomain the end of the names by which
	// browsers find them: PORT-NAME.domain.
	EntranceListen string
	EntranceDomain string
	// ResumeDeadline is how long a request for a workspace that sleeps is held.
	ResumeDeadline time.Duration
	Node           Node
	// StoreDir is the directory object store; "" is <state>/objects. Read it
	// by Config.Objects.
	StoreDir string
	// FlushEvery is how often a running workspace is saved.
	FlushEvery time.Duration
	// StopGrace is how long a guest may take to end before it is ended.
	StopGrace time.Duration
	// MemoryKeep is how long the memory image of a hibernated workspace is kept,
	// and ClassMemoryKeep what holds for a class instead; model.KeepNothing is
	// not at all.
	MemoryKeep      time.Duration
	ClassMemoryKeep map[model.Class]time.Duration
	// Tiers, at least one; the first is the default.
	Tiers []model.Tier
}

// Node is what a node is told.
type Node struct {
	Name   string // a DNS label
	Driver model.DriverName
	// Server is where `billet node` finds its server: a URL as in
	// api.ParseEndpoint; "" is the Unix socket in the state directory.
	Server string
	// TokenFile holds the token with which `billet node` calls the server;
	// "" is <state>/node/token.
	TokenFile string
	// CacheLimit bounds the host block cache.
	CacheLimit int64
	// Capacity is what the node offers; a zero field is measured.
	Capacity model.Capacity
}

const (
	defaultAPIListen     = "127.0.0.1:7480"
	defaultGatewayListen = "127.0.0.1:7481"
	defaultSSHListen     = "127.0.0.1:7422"
	// Browsers resolve every name below localhost to this machine, and no name
	// server is asked.
	defaultEntranceListen = "127.0.0.1:7482"
	defaultEntranceDomain = "billet.localhost"
	defaultResumeDeadline = time.Minute
	defaultFlushEvery     = 5 * time.Minute
	defaultStopGrace      = 10 * time.Second
	defaultMemoryKeep     = 7 * 24 * time.Hour // seed 002, decision 3
	defaultCacheLimit     = 20 << 30
	defaultImage          = "base"
	defaultProcesses      = 4096
	defaultOpenFiles      = 65536
	rootState             = "/var/lib/billet"
)

// Default is the configuration without a file.
func Default() Config {
	return Config{
		State:          DefaultState(),
		APIListen:      defaultAPIListen,
		GatewayListen:  defaultGatewayListen,
		EntranceListen: defaultEntranceListen,
		EntranceDomain: defaultEntranceDomain,
		ResumeDeadline: defaultResumeDeadline,
		SSHListen:      defaultSSHListen,
		Node: Node{
			Name:       hostLabel(os.Hostname()),
			Driver:     model.DriverGVisor,
			CacheLimit: defaultCacheLimit,
		},
		FlushEvery: defaultFlushEvery,
		StopGrace:  defaultStopGrace,
		MemoryKeep: defaultMemoryKeep,
		Tiers: []model.Tier{
			defaultTier("small", 1, 1<<30, 16<<30),
			defaultTier("medium", 2, 4<<30, 32<<30),
			defaultTier("large", 4, 8<<30, 64<<30),
		},
	}
}

func defaultTier(name string, vcpus int, memory, disk int64) model.Tier {
	return model.Tier{
		Name:    name,
		Shape:   model.Shape{VCPUs: vcpus, Memory: memory, Disk: disk, Processes: defaultProcesses, OpenFiles: defaultOpenFiles},
		Image:   defaultImage,
		Drivers: []model.DriverName{model.DriverGVisor},
	}
}

// DefaultState is where state lives unless somebody says otherwise: the
// machine's place for root, the user's own for anybody else.
func DefaultState() string {
	if os.Getuid() == 0 {
		return rootState
	}
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "billet")
	}
	if home, err := os.UserHomeDir(); err == nil {
		return filepath.Join(home, ".local", "state", "billet")
	}
	return rootState
}

// hostLabel makes a name out of the host's: its first label, as far as it can
// be one.
func hostLabel(host string, err error) string {
	label, _, _ := strings.Cut(strings.ToLower(host), ".")
	label = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '-'
	}, label)
	label = strings.Trim(label[:min(len(label), model.MaxNameLength)], "-")
	if err != nil || model.CheckName("node", label) != nil {
		return "node"
	}
	return label
}

// WithState returns c with another state directory. Everything below it moves.
func (c Config) WithState(dir string) (Config, error) {
	abs, err := filepath.Abs(dir)
	if err != nil || dir == "" {
		return Config{}, errs.New(errs.Invalid, "state directory %q is no path", dir).WithHint("name an absolute path")
	}
	c.State = abs
	return c, nil
}

// Socket is the API's Unix socket, for root on this machine.
func (c Config) Socket() string { return filepath.Join(c.State, "billet.sock") }

// ServerDir holds the ledger and the secrets of the server.
func (c Config) ServerDir() string { return filepath.Join(c.State, "server") }

// NodeDir holds everything of the node.
func (c Config) NodeDir() string { return filepath.Join(c.State, "node") }

// Objects is the directory of the object store.
func (c Config) Objects() string {
	if c.StoreDir != "" {
		return c.StoreDir
	}
	return filepath.Join(c.State, "objects")
}

// NodeTokenFile is where `billet node` finds its token.
func (c Config) NodeTokenFile() string {
	if c.Node.TokenFile != "" {
		return c.Node.TokenFile
	}
	return filepath.Join(c.NodeDir(), "token")
}

// GatewayToken is where `billet gateway` finds its token.
func (c Config) GatewayToken() string {
	if c.GatewayTokenFile != "" {
		return c.GatewayTokenFile
	}
	return filepath.Join(c.State, "gateway", "token")
}

// NodeServer is the endpoint URL at which `billet node` finds its server.
func (c Config) NodeServer() string {
	if c.Node.Server != "" {
		return c.Node.Server
	}
	return "unix://" + c.Socket()
}
