// Command billet-guest is the agent inside a guest, PID 1 of a sandbox, and the
// tools that it brings for a guest whose image lacks them.
//
// Go looks for a limit of processor time in the cgroup, once a second and before
// main. A guest has none: its boundary shows it as many processors as it may use.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0
package main

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/billethq/billet/internal/guest/agent"
	"github.com/billethq/billet/internal/guest/archive"
	"github.com/billethq/billet/internal/guest/forward"
	"github.com/billethq/billet/internal/guest/guestpath"
	"github.com/billethq/billet/internal/guest/sftp"
)

const usage = `usage: billet-guest                serve, as the first process of a guest
       billet-guest serve SOCKET    the same, on another socket than /run/billet/agent.sock
       billet-guest pack PATH...    write the paths to standard output as a tar archive
       billet-guest unpack DEST     read a tar archive from standard input
       billet-guest sftp            serve file transfers over standard input and output
       billet-guest forward         carry connections over standard input and output
       billet-guest version
`

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "billet-guest:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	socket := filepath.Join(guestpath.SideDir, guestpath.AgentSocket)
	switch {
	case len(args) == 0:
		return serve(socket)
	case args[0] == "serve" && len(args) == 2:
		return serve(args[1])
	case args[0] == "pack" && len(args) > 1:
		return archive.Pack(os.Stdout, args[1:], func(err error) { fmt.Fprintln(os.Stderr, "billet-guest:", err) })
	case args[0] == "unpack" && len(args) == 2:
		return archive.Unpack(os.Stdin, args[1])
	case args[0] == "sftp" && len(args) == 1:
		return sftp.Serve(os.Stdin, os.Stdout)
	case args[0] == "forward" && len(args) == 1:
		return forward.Serve(os.Stdin, os.Stdout)
	case args[0] == "version" && len(args) == 1:
		fmt.Println(version())
		return nil
	}
	fmt.Fprint(os.Stderr, usage)
	os.Exit(2)
	return nil
}

func serve(socket string) error {
	return agent.Main(socket, version(), slog.New(slog.NewJSONHandler(os.Stderr, nil)))
}

func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return info.Main.Version
}
