// Command billet is the server, the gateway, the node, the volume process and
// the client.
package main

import (
	"os"

	"github.com/billethq/billet/internal/cli"
	"github.com/billethq/billet/internal/daemon"
)

func main() {
	// There is a volume process for every guest: it gets none of the command
	// tree, so that it stays small.
	if len(os.Args) == 2 && os.Args[1] == "volume" {
		os.Exit(daemon.VolumeMain(os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(cli.Main(os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}
