// Command runsc is gVisor's runsc, built from gVisor's Go module.
//
// It is a module of its own, so that gVisor's dependencies stay out of
// billet's. runsc executes itself again for every part of a sandbox, so it has
// to be a binary of its own too. build.sh builds it.
package main

import (
	"gvisor.dev/gvisor/runsc/cli/maincli"
	// Named so that build.sh can set its version at link time.
	_ "gvisor.dev/gvisor/runsc/version"
)

func main() { maincli.Main() }
