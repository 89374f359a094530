// Package execclient runs a command in a guest for a client outside it, as if
// it ran here: input, output, signals, terminal and exit code.
//
// The road to the guest may break at any byte. A run then reaches the guest
// again and goes on where it was: the agent keeps what was not acknowledged
// and counts what it has taken (package guest), so that no byte is lost and
// none comes twice.
package execclient

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/guest"
	"github.com/billethq/billet/internal/guest/processpb/processpbconnect"
)

// Config holds what a Client needs.
type Config struct {
	// Dial opens a connection to the guest's agent. It is called for every
	// stream and concurrently. An error of the kinds Internal and Unavailable,
	// or of none, is tried again; any other ends the run.
	Dial func(ctx context.Context) (net.Conn, error)
	Log  *slog.Logger
	// Window is how long a run tries to reach the guest again once it has
	// noticed that it lost it; 0 means guest.ResumeWindow. More would be in
	// vain: the agent holds no longer.
	Window time.Duration
}

// Client runs commands in one guest. It is safe for concurrent use.
type Client struct {
	cfg Config
}

// New returns a Client.
func New(c Config) (*Client, error) {
	if c.Dial == nil || c.Log == nil {
		return nil, errors.New("exec client: Dial and Log are needed")
	}
	if c.Window == 0 {
		c.Window = guest.ResumeWindow
	}
	return &Client{cfg: c}, nil
}

// Size is a terminal's, in characters.
type Size struct{ Cols, Rows uint16 }

// Command is what to run and what to connect to it.
type Command struct {
	Args []string          // the program and its arguments; at least one
	Env  map[string]string // in addition to the user's own
	Cwd  string            // "" is the user's home
	User string            // "" is the guest's default user
	PTY  *Size             // a terminal of this size; all its output goes to Stdout

	// Stdin is read until its end, which is passed on; nil is no input. Run may
	// return while a Read of it has not: it cannot be interrupted.
	Stdin io.Reader
	// Stdout takes the output; nil drops it. When a Write fails the process is
	// sent SIGPIPE, and SIGKILL when it does not end by that: EPIPE is then the
	// exit code 141, any other error the error of Run. With Leave such another
	// error ends the run, and the process is the caller's to end.
	Stdout io.Writer
	Stderr io.Writer // the same

	// Flow says that Stdin is the bytes of connections: nobody need sit there.
	Flow bool
	// Tag names the process, for Terminals and Signal; "" is a random name.
	Tag string
	// Again is a process that runs already, to go on with: nothing is started.
	Again *Terminal
	// Leave has the agent told at once that nobody follows the process any more
	// when ctx ends: its output is not held back for a client that comes back.
	Leave bool
	// KilledBy is told the signal that ended the process; may be nil.
	KilledBy func(syscall.Signal)

	Signals <-chan syscall.Signal // passed on to the process group; may be nil
	Resizes <-chan Size           // of the terminal; may be nil
}

// Run runs cmd and returns its exit code, 128 plus the number of the signal
// that ended it, also with an error if Stdin had one, 127 or 126 with an error
// when it could not be executed, and otherwise -1 with an error. An error that leaves the process running says so.
// The end of ctx ends the run and not the process.
func (c *Client) Run(ctx context.Context, cmd Command) (int, error) {
	if len(cmd.Args) == 0 {
		return -1, errs.New(errs.Invalid, "no command to run")
	}
	// A deadline on ctx would travel to the agent, where it is the process's
	// time limit; only the run has one.
	ctx, cancel := detach(ctx)
	defer cancel(nil)
	r := newRun(c, cmd)
	defer r.close()
	return r.run(ctx)
}

// detach returns a context that ends with ctx and has no deadline.
func detach(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	d, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	return d, func(err error) { stop(); cancel(err) }
}

// transport makes an HTTP client of the dial function. Each keeps one idle
// connection, so that calls in a row use one road.
func transport(dial func(context.Context) (net.Conn, error)) *http.Transport {
	return &http.Transport{
		DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
		MaxIdleConns:        1,
		MaxIdleConnsPerHost: 1,
		IdleConnTimeout:     time.Minute,
		DisableCompression:  true,
	}
}

// baseURL names nothing: the dial function knows where the agent is.
const baseURL = "http://guest"

func service(t *http.Transport) processpbconnect.ProcessClient {
	return processpbconnect.NewProcessClient(&http.Client{Transport: t}, baseURL,
		connect.WithReadMaxBytes(guest.MaxMessage),
		connect.WithAcceptCompression("gzip", nil, nil), // guests' bytes are not worth it, and may be a bomb
	)
}

// basic names the user as the contract does.
func basic(user string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"))
}
