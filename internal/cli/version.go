package cli

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
)

// versionTimeout bounds how long version asks the server for its own.
const versionTimeout = 2 * time.Second

// versions are what version prints as JSON; it is no answer of the API.
type versions struct {
	Version    string    `json:"version"`
	APIVersion string    `json:"api_version"`
	Go         string    `json:"go"`
	Platform   string    `json:"platform"`
	Server     *api.Info `json:"server,omitempty"`
}

func (a *app) version() *cobra.Command {
	c := &cobra.Command{Use: "version", Short: "Print the versions of this binary and of the server", Args: arguments(0, 0)}
	json := jsonFlag(c)
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		v := versions{Version: buildVersion(), APIVersion: api.Version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
		info, err := a.serverInfo(cmd.Context())
		if err == nil {
			v.Server = &info
		}
		if *json {
			return a.printJSON(v)
		}
		server := ""
		switch {
		case err == nil:
			server = fmt.Sprintf("%s (API %s)", info.Version, info.APIVersion)
		case !errs.Is(err, errs.Unavailable): // one that is not there has no version
			server = "unknown: " + err.Error()
		}
		return a.fields("billet", fmt.Sprintf("%s (API %s, %s, %s)", v.Version, v.APIVersion, v.Go, v.Platform), "server", server)
	}
	return c
}

func (a *app) serverInfo(ctx context.Context) (api.Info, error) {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	client, err := a.client()
	if err != nil {
		return api.Info{}, err
	}
	defer client.Close()
	return client.Info(ctx)
}
