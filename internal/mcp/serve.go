package mcp

import (
	"context"
	"log/slog"
	"net/http"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/billethq/billet/internal/api"
)

// Stdio serves one client on standard input and output until it hangs up.
func Stdio(ctx context.Context, client *api.Client, version string, log *slog.Logger) error {
	return New(client, version, log).Run(ctx, &sdk.StdioTransport{})
}

// Path is where the streamable HTTP transport is served.
const Path = "/mcp"

// Handler serves the streamable HTTP transport. Each request has a bearer token
// of its own, and acts by it alone: connect makes a client of one. It keeps no
// sessions, so that a restart of the server ends none.
func Handler(connect func(api.Secret) (*api.Client, error), version string, log *slog.Logger) http.Handler {
	inner := sdk.NewStreamableHTTPHandler(func(r *http.Request) *sdk.Server {
		client, err := connect(token(r))
		if err != nil {
			log.Error("mcp client", "err", err)
			return nil // which is answered as a bad request
		}
		return New(client, version, log)
	}, &sdk.StreamableHTTPOptions{Stateless: true})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if token(r) == "" {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "a token is wanted: Authorization: Bearer TOKEN (make one with: billet token create)", http.StatusUnauthorized)
			return
		}
		inner.ServeHTTP(w, r)
	})
}

func token(r *http.Request) api.Secret {
	scheme, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return api.Secret(strings.TrimSpace(secret))
}
