package daemon

import (
	"io"

	"github.com/billethq/billet/internal/blob"
	"github.com/billethq/billet/internal/blob/dir"
	"github.com/billethq/billet/internal/volume/protocol"
	"github.com/billethq/billet/internal/volume/server"
)

// VolumeMain is the volume process (billet volume), with the object stores
// that this build has. It returns the exit code.
func VolumeMain(stdin io.Reader, stdout, stderr io.Writer) int {
	return server.Main(stdin, stdout, stderr, func(cfg protocol.StoreConfig) (blob.Bucket, error) { return dir.Open(cfg.Dir) })
}
