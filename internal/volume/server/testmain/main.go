// Command testmain is the volume process alone, for tests that need one built
// in a certain way (with failpoints, or without the race detector).
package main

import (
	"os"

	"github.com/billethq/billet/internal/volume/server"
)

func main() { os.Exit(server.Main(os.Stdin, os.Stdout, os.Stderr)) }
