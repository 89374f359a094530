package sshd

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
	"github.com/billethq/billet/internal/testenv"
)

// plane is a control plane that knows everybody or nobody.
type plane struct {
	host  api.SSHHost
	known bool
}

func newPlane(t *testing.T) *plane {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	cert := &ssh.Certificate{Key: signer.PublicKey(), CertType: ssh.HostCert, ValidPrincipals: []string{"gate"}, ValidBefore: ssh.CertTimeInfinity}
	if err := cert.SignCert(rand.Reader, signer); err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	return &plane{host: api.SSHHost{Key: api.Secret(pem.EncodeToMemory(block)), Certificate: string(ssh.MarshalAuthorizedKey(cert))}}
}

func (p *plane) SSHHost(context.Context) (api.SSHHost, error) { return p.host, nil }

func (p *plane) GrantSSH(context.Context, api.SSHGrantRequest) (api.SSHGrant, error) {
	if !p.known {
		return api.SSHGrant{}, errs.New(errs.Unauthenticated, "the key is not known")
	}
	return api.SSHGrant{Principal: model.PrincipalID("ada"), Expires: clock.Real{}.Now().Add(time.Hour)}, nil
}

func (p *plane) Enter(context.Context, api.EnterRequest, func(api.ConnectPhase) error) (api.Attachment, error) {
	return api.Attachment{}, errs.New(errs.Conflict, "workspace demo is\x1b[2J stopped").WithHint("start it")
}

func serve(t *testing.T, p *plane) (*Server, string) {
	t.Helper()
	s, err := New(Config{
		Control: p, Clock: clock.Real{}, Log: slog.New(slog.DiscardHandler),
		Dial: func(context.Context, api.Attachment) (net.Conn, error) { return nil, errors.New("no road") },
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	return s, l.Addr().String()
}

func connect(t *testing.T, address string) (*ssh.Client, error) {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	return ssh.Dial("tcp", address, &ssh.ClientConfig{
		User: "demo", Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)}, HostKeyCallback: ssh.InsecureIgnoreHostKey(), Timeout: 10 * time.Second,
	})
}

// Clients that never say who they are cost the oldest of them its connection,
// and nobody else anything.
func TestServer_HalfOpenConnectionsAreBounded(t *testing.T) {
	p := newPlane(t)
	p.known = true
	s, address := serve(t, p)
	const many = 4 * maxHandshakes
	var first net.Conn
	for i := range many {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if i == 0 {
			first = c
		}
	}
	client, err := connect(t, address)
	if err != nil {
		t.Fatalf("a client among %d half-open connections: %v", many, err)
	}
	_ = client.Close()
	s.waiting.mu.Lock()
	n := s.waiting.all.Len()
	s.waiting.mu.Unlock()
	if n > maxHandshakes {
		t.Errorf("%d half-open connections are kept, want at most %d", n, maxHandshakes)
	}
	_ = first.SetReadDeadline(time.Now().Add(10 * time.Second))
	r := bufio.NewReader(first)
	for err = error(nil); err == nil; {
		_, err = r.ReadByte()
	}
	var late net.Error
	if errors.As(err, &late) && late.Timeout() {
		t.Error("the oldest connection is still open")
	}
}

func TestServer_RefusesAndSaysWhy(t *testing.T) {
	p := newPlane(t)
	_, address := serve(t, p)
	if _, err := connect(t, address); err == nil || !strings.Contains(err.Error(), "unable to authenticate") {
		t.Errorf("a key that nobody has: got %v", err)
	}
	p = newPlane(t)
	p.known = true
	s, address := serve(t, p)
	client, err := connect(t, address)
	if err != nil {
		t.Fatal(err)
	}
	session, err := client.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	session.Stderr = &said
	var exit *ssh.ExitError
	if err := session.Run("true"); !errors.As(err, &exit) || exit.ExitStatus() != exitFailed {
		t.Errorf("a workspace that is stopped: got %v, want exit status %d", err, exitFailed)
	}
	// What somebody named must not move the cursor of who reads it.
	if want := "billet: workspace demo is [2J stopped\nhint: start it\n"; said.String() != want {
		t.Errorf("said %q, want %q", said.String(), want)
	}
	_ = client.Close()
	testenv.Await(t, 10*time.Second, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.open) != 0 || len(s.count) != 0 {
			return errors.New("the connection is still counted")
		}
		return nil
	})
}
