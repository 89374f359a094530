// Package mcp lets a program that speaks the Model Context Protocol, such as an
// agent, use workspaces: create, list, exec, read, write, hibernate, fork.
//
// It stands on the API's client and has no authority of its own: what its
// token may not do, it cannot. Calling into a workspace that sleeps resumes it.
package mcp

import (
	"context"
	"log/slog"
	"net"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/guest/execclient"
	"github.com/billethq/billet/internal/road"
)

// server offers one principal's workspaces.
type server struct {
	client *api.Client
	log    *slog.Logger
	// enter is the way to run commands in a workspace.
	enter func(ctx context.Context, name string) (*execclient.Client, error)
}

// New returns a protocol server whose tools act by client.
func New(client *api.Client, version string, log *slog.Logger) *sdk.Server {
	s := &server{client: client, log: log}
	s.enter = s.connect
	return s.protocol(version)
}

func (s *server) protocol(version string) *sdk.Server {
	out := sdk.NewServer(&sdk.Implementation{Name: "billet", Title: "billet workspaces", Version: version}, &sdk.ServerOptions{
		Instructions: "A workspace is a durable Linux machine with a disk of its own and no network. Create one, run commands in it with exec, " +
			"move files with read and write. hibernate saves it with its memory; any later call brings it back where it was. fork copies it, processes included.",
	})
	sdk.AddTool(out, &sdk.Tool{Name: "create", Description: "Create a workspace and start it."}, s.create)
	sdk.AddTool(out, readOnly("list", "List workspaces with their states."), s.list)
	sdk.AddTool(out, &sdk.Tool{Name: "exec", Description: "Run a shell command in a workspace and return its exit code and output. A command that outlives its timeout is killed."}, s.exec)
	sdk.AddTool(out, readOnly("read", "Read a file in a workspace, as text or, when it is not text, as base64."), s.read)
	sdk.AddTool(out, &sdk.Tool{Name: "write", Description: "Write a file in a workspace, making its directories. An existing file is replaced."}, s.write)
	sdk.AddTool(out, &sdk.Tool{Name: "hibernate", Description: "Save a workspace with its memory and stop it. Nothing is lost."}, s.hibernate)
	sdk.AddTool(out, &sdk.Tool{Name: "fork", Description: "Make a new workspace that begins as another one is now, its processes included."}, s.fork)
	return out
}

func readOnly(name, description string) *sdk.Tool {
	return &sdk.Tool{Name: name, Description: description, Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true}}
}

// connect resumes a workspace that sleeps and returns the way into it.
func (s *server) connect(ctx context.Context, name string) (*execclient.Client, error) {
	if name == "" {
		return nil, errs.New(errs.Invalid, "workspace is missing").WithHint("list has their names")
	}
	first, err := s.client.Connect(ctx, name, api.ConnectRequest{}, func(api.ConnectPhase) {})
	if err != nil {
		return nil, err
	}
	taken := make(chan api.Attachment, 1)
	taken <- first
	return execclient.New(execclient.Config{Log: s.log, Dial: func(ctx context.Context) (net.Conn, error) {
		select {
		case a := <-taken:
			return road.Dial(ctx, a)
		default:
		}
		a, err := s.client.Attach(ctx, name)
		if err != nil {
			return nil, err
		}
		if a.Instance != first.Instance {
			return nil, errs.New(errs.Stale, "the workspace has been restarted meanwhile")
		}
		return road.Dial(ctx, a)
	}})
}
