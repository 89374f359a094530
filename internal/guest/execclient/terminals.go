package execclient

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"syscall"

	"connectrpc.com/connect"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/guest"
	pb "github.com/billethq/billet/internal/guest/processpb"
)

const (
	// replay is how much of a terminal's last output is shown to who comes back
	// to it: some screens full, and far less than the agent keeps.
	replay = 64 << 10
	// maxTerminals bounds the list: 1024 processes with tags of 256 bytes.
	maxTerminals = 1 << 20
)

// Terminal is a running process with a terminal that nobody follows.
type Terminal = guest.Terminal

// Terminals lists those of the guest, in no order. errs.Unsupported for a guest
// whose agent is older than this.
func (c *Client) Terminals(ctx context.Context) ([]Terminal, error) {
	t := transport(c.cfg.Dial)
	defer t.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, baseURL+guest.TerminalsPath, nil)
	if err != nil {
		return nil, errs.Wrap(errs.Internal, err, "list terminals")
	}
	res, err := t.RoundTrip(req)
	if err != nil {
		return nil, errs.Wrap(errs.Unavailable, err, "list terminals")
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, errs.New(errs.Unsupported, "the guest agent answers %s to a list of terminals", res.Status)
	}
	var list []Terminal
	if err := json.NewDecoder(io.LimitReader(res.Body, maxTerminals)).Decode(&list); err != nil {
		return nil, errs.Wrap(errs.Unavailable, err, "list terminals")
	}
	return list, nil
}

// Signal sends a signal to the process group of the process with a tag. One
// that is not there is no error.
func (c *Client) Signal(ctx context.Context, tag string, sig syscall.Signal) error {
	t := transport(c.cfg.Dial)
	defer t.CloseIdleConnections()
	_, err := service(t).SendSignal(ctx, connect.NewRequest(&pb.SendSignalRequest{
		Process: &pb.ProcessSelector{Selector: &pb.ProcessSelector_Tag{Tag: tag}}, Signal: pb.Signal(sig),
	}))
	if connect.CodeOf(err) == connect.CodeNotFound {
		return nil
	}
	return errs.Wrap(errs.Unavailable, err, "signal the process")
}
