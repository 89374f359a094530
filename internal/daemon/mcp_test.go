package daemon

import (
	"net/http"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/mcp"
	"github.com/billethq/billet/internal/model"
)

// TestMCP_IsOnTheAPIsPort: an agent with a token finds the tools there, and one
// without is told what it wants.
func TestMCP_IsOnTheAPIsPort(t *testing.T) {
	d := up(t, home(t))
	defer d.down()
	url := "http://" + d.cfg.APIListen + mcp.Path
	res, err := http.Post(url, "application/json", strings.NewReader("{}"))
	if err != nil || res.StatusCode != http.StatusUnauthorized {
		t.Fatalf("without a token: %+v, %v", res, err)
	}
	_ = res.Body.Close()
	token, err := d.client.CreateToken(t.Context(), api.CreateTokenRequest{Name: "agent", Class: model.ClassAgent})
	if err != nil {
		t.Fatal(err)
	}
	transport := &sdk.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: bearer(token.Secret)}}
	s, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), transport, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	res2, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "list"})
	if err != nil || res2.IsError {
		t.Errorf("list: %+v, %v", res2, err)
	}
}

type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}
