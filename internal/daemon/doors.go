package daemon

import (
	"net/http"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/httpapi"
	"github.com/billethq/billet/internal/mcp"
)

// doors are the APIs beside ours on the API's port: the first that claims a
// request has it.
type doors []httpapi.Beside

// Claims implements httpapi.Beside.
func (d doors) Claims(r *http.Request) bool { return d.of(r) != nil }

// ServeHTTP implements http.Handler.
func (d doors) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.of(r).ServeHTTP(w, r) }

func (d doors) of(r *http.Request) httpapi.Beside {
	for _, door := range d {
		if door.Claims(r) {
			return door
		}
	}
	return nil
}

// mcpDoor is the Model Context Protocol over HTTP. It calls the API as any
// client does, by the token that each request brings.
type mcpDoor struct{ http.Handler }

func newMCPDoor(opts Options) mcpDoor {
	ep := api.Endpoint{Network: "unix", Address: opts.Config.Socket()}
	connect := func(token api.Secret) (*api.Client, error) {
		return api.NewClient(api.ClientConfig{Endpoint: ep, Token: token})
	}
	return mcpDoor{mcp.Handler(connect, opts.Version, opts.Log.With("role", "server"))}
}

// Claims implements httpapi.Beside.
func (mcpDoor) Claims(r *http.Request) bool { return r.URL.Path == mcp.Path }
