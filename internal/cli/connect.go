package cli

import (
	"errors"
	"io/fs"
	"os"
	"strings"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/config"
	"github.com/billethq/billet/internal/errs"
)

// maxTokenBytes bounds a token file.
const maxTokenBytes = 4 << 10

// settings is the configuration: the file that --config or BILLET_CONFIG
// names, under --state or BILLET_STATE.
func (a *app) settings() (config.Config, error) {
	c, err := config.Load(orElse(a.flags.config, getenv("BILLET_CONFIG")))
	if err != nil {
		return c, err
	}
	if dir := orElse(a.flags.state, getenv("BILLET_STATE")); dir != "" {
		return c.WithState(dir)
	}
	return c, nil
}

// client is the way to the server. It does not connect yet.
func (a *app) client() (*api.Client, error) {
	endpoint, err := a.endpoint()
	if err != nil {
		return nil, err
	}
	token, err := a.tokenSecret()
	if err != nil {
		return nil, err
	}
	return api.NewClient(api.ClientConfig{Endpoint: endpoint, Token: token})
}

func (a *app) endpoint() (api.Endpoint, error) {
	switch {
	case a.flags.address != "" && a.flags.socket != "":
		return api.Endpoint{}, errs.New(errs.Invalid, "--socket and --address are two ways to one server").WithHint("leave one of them away")
	case strings.Contains(a.flags.address, "://"):
		return api.ParseEndpoint(a.flags.address)
	case a.flags.address != "":
		return api.ParseEndpoint("http://" + a.flags.address)
	case a.flags.socket != "":
		return api.Endpoint{Network: "unix", Address: a.flags.socket}, nil
	}
	c, err := a.settings()
	return api.Endpoint{Network: "unix", Address: c.Socket()}, err
}

// tokenSecret reads the token. There is no flag for the token itself: every
// user of the machine could read it there.
func (a *app) tokenSecret() (api.Secret, error) {
	if a.flags.tokenFile == "" {
		return api.Secret(strings.TrimSpace(getenv("BILLET_TOKEN"))), nil
	}
	info, err := os.Stat(a.flags.tokenFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", errs.New(errs.NotFound, "there is no token file %s", a.flags.tokenFile).WithHint("make one with: billet token create NAME > %s", a.flags.tokenFile)
	case err == nil && (info.Size() > maxTokenBytes || info.IsDir()):
		return "", errs.New(errs.Invalid, "%s is no token file", a.flags.tokenFile).WithHint("it has the one line that billet token create prints")
	}
	text, err := os.ReadFile(a.flags.tokenFile)
	if err != nil {
		return "", errs.Wrap(errs.Denied, err, "read the token")
	}
	token := strings.TrimSpace(string(text))
	if token == "" || strings.ContainsAny(token, " \t\r\n") {
		return "", errs.New(errs.Invalid, "%s is no token file", a.flags.tokenFile).WithHint("it has the one line that billet token create prints")
	}
	return api.Secret(token), nil
}

func orElse(s, other string) string {
	if s != "" {
		return s
	}
	return other
}
