package sshd

import (
	"context"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
)

// maxAuthTries bounds the keys that a client may offer on one connection: an
// agent of keys offers all it has.
const maxAuthTries = 20

// grantKey is where a grant travels from the handshake to the connection.
type grantKey struct{}

// handshake configures one client's.
func (s *Server) handshake(ctx context.Context) *ssh.ServerConfig {
	cfg := &ssh.ServerConfig{
		MaxAuthTries:  maxAuthTries,
		ServerVersion: "SSH-2.0-billet",
		PublicKeyCallback: func(meta ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			return s.authorise(ctx, meta.User(), key)
		},
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, signer := range s.host {
		cfg.AddHostKey(signer)
	}
	return cfg
}

// authorise asks control who has a key. The library calls it once for each key
// that is offered, before the client proves that it has it; nothing is done
// with the grant until then.
func (s *Server) authorise(ctx context.Context, workspace string, key ssh.PublicKey) (*ssh.Permissions, error) {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	line := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
	g, err := s.cfg.Control.GrantSSH(ctx, api.SSHGrantRequest{PublicKey: line, Workspace: workspace})
	if err != nil {
		return nil, refusal(key, err)
	}
	return &ssh.Permissions{ExtraData: map[any]any{grantKey{}: g}}, nil
}

// refusal tells a client why, where that is not what anybody may hear: of a key
// that nobody has, only that it is refused.
func refusal(key ssh.PublicKey, err error) error {
	if _, cert := key.(*ssh.Certificate); errs.Is(err, errs.Unauthenticated) && !cert {
		return err
	}
	return &ssh.BannerError{Err: err, Message: message(err, "\n")}
}

// message is an error as a person sees it.
func message(err error, eol string) string {
	text := "billet: " + printable(err.Error()) + eol
	if hint := errs.HintOf(err); hint != "" {
		text += "hint: " + printable(hint) + eol
	}
	return text
}
