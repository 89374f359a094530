package control

import (
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/crypto/ssh"

	"github.com/billethq/billet/internal/atomicfile"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// Secrets keeps the deployment's keys as files of mode 0600 in one directory
// of mode 0700. Losing the directory makes every stored block unreadable: it
// belongs into a backup with the ledger.
type Secrets struct {
	dir string
	mu  sync.Mutex
}

// keyBytes is the size of every key: a BLAKE3 key and an Ed25519 seed.
const keyBytes = 32

// OpenSecrets creates dir if need be.
func OpenSecrets(dir string) (*Secrets, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, errs.Wrap(errs.Internal, err, "create the secrets directory")
	}
	return &Secrets{dir: dir}, nil
}

// keyFiles are the keys of a deployment that has ever had a node, and with it
// anything stored.
func keyFiles() []string {
	return []string{ticketKeyFile, domainKeyFile(model.DeploymentDomain), domainKeyFile(string(model.DefaultTenant))}
}

const ticketKeyFile = "ticket.key"

func domainKeyFile(domain string) string { return "domain-" + domain + ".key" }

// missing names the first key that is not there, "" when all are.
func (s *Secrets) missing() string {
	for _, name := range keyFiles() {
		path := filepath.Join(s.dir, name)
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return path
		}
	}
	return ""
}

// TicketKey signs the tickets of the road.
func (s *Secrets) TicketKey() (ed25519.PrivateKey, error) {
	seed, err := s.key(ticketKeyFile)
	if err != nil {
		return nil, err
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

// The keys of SSH. One that is lost is made anew: nothing is stored under it,
// but every client must be told of it.
const (
	sshHostFile          = "ssh-host.key"           // what every gateway shows
	sshHostAuthorityFile = "ssh-host-authority.key" // signs host certificates
	sshUserAuthorityFile = "ssh-user-authority.key" // signs user certificates
)

// SSHKey returns one of the keys of SSH.
func (s *Secrets) SSHKey(file string) (ssh.Signer, error) {
	seed, err := s.key(file)
	if err != nil {
		return nil, err
	}
	signer, err := ssh.NewSignerFromSigner(ed25519.NewKeyFromSeed(seed))
	return signer, errs.Wrap(errs.Internal, err, "load key %s", file)
}

// DomainKeys returns the keys of the deployment's domain and of the tenants.
func (s *Secrets) DomainKeys(tenants ...model.TenantID) ([]model.DomainKey, error) {
	names := []string{model.DeploymentDomain}
	for _, t := range tenants {
		names = append(names, string(t))
	}
	keys := make([]model.DomainKey, 0, len(names))
	for _, name := range names {
		k, err := s.key(domainKeyFile(name))
		if err != nil {
			return nil, err
		}
		keys = append(keys, model.DomainKey{Domain: name, Key: k})
	}
	return keys, nil
}

// key reads a key, creating it on first use.
func (s *Secrets) key(name string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := filepath.Join(s.dir, name)
	b, err := os.ReadFile(path)
	switch {
	case err == nil && len(b) == keyBytes:
		return b, nil
	case err == nil:
		return nil, errs.New(errs.Internal, "key file %s has %d bytes, not %d", path, len(b), keyBytes).WithHint("restore it from a backup: without it stored blocks cannot be read")
	case !errors.Is(err, fs.ErrNotExist):
		return nil, errs.Wrap(errs.Internal, err, "read key %s", name)
	}
	b = make([]byte, keyBytes)
	_, _ = rand.Read(b)
	if err := atomicfile.Write(path, b, 0o600); err != nil {
		return nil, errs.Wrap(errs.Internal, err, "create key %s", name)
	}
	return b, nil
}
