//go:build failpoint

package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/billethq/billet/internal/config"
	"github.com/billethq/billet/internal/daemon"
	"github.com/billethq/billet/internal/errs"
)

// The names under which the test binary is a role of billet.
const (
	roleServer  = "server"
	roleGateway = "gateway"
	roleNode    = "node"
	roleUp      = "up"
	roleVolume  = "volume" // the node's name for it
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case roleVolume:
			os.Exit(daemon.VolumeMain(os.Stdin, os.Stdout, os.Stderr))
		case roleServer, roleGateway, roleNode, roleUp:
			os.Exit(runRole(os.Args[1], os.Args[2]))
		}
	}
	os.Exit(m.Run())
}

// orphaned is the exit code of a role whose test process is gone.
const orphaned = 3

// runRole is a role's main: its configuration is in a file, and it ends with
// SIGTERM, or with its standard input when the test process was killed.
func runRole(name, file string) int {
	var cfg config.Config
	raw, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(raw, &cfg)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(orphaned)
	}()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	opts := daemon.Options{Config: cfg, Version: "test", Out: os.Stdout, Log: slog.New(slog.NewTextHandler(os.Stdout, nil))}
	switch name {
	case roleServer:
		err = daemon.Server(ctx, opts)
	case roleGateway:
		err = daemon.Gateway(ctx, opts)
	case roleNode:
		err = daemon.Node(ctx, opts)
	case roleUp:
		err = daemon.Up(ctx, opts)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\nhint: %s\nkind: %s\n", err, errs.HintOf(err), errs.KindOf(err))
		return 1
	}
	return 0
}
