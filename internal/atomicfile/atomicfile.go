// Package atomicfile replaces files whole.
package atomicfile

import (
	"io/fs"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// Write makes path a file with this content and these permissions, on the disk
// when it returns. Whatever happens, path is what it was or what it becomes.
// What is not finished lies beside it: what a killed process leaves of a secret
// must not lie where temporary files do.
func Write(path string, content []byte, mode fs.FileMode) error {
	f, err := renameio.NewPendingFile(path, renameio.WithTempDir(filepath.Dir(path)), renameio.WithStaticPermissions(mode))
	if err != nil {
		return err
	}
	defer f.Cleanup()
	if _, err := f.Write(content); err != nil {
		return err
	}
	return f.CloseAtomicallyReplace()
}
