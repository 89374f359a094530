package process

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// lookPath finds cmd as a shell would with this PATH and working directory. A
// name with a slash is taken as it is; the kernel then says what is wrong.
func lookPath(cmd, path, cwd string) (string, error) {
	if strings.Contains(cmd, "/") {
		return cmd, nil
	}
	found := error(syscall.ENOENT)
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(cwd, dir)
		}
		full := filepath.Join(dir, cmd)
		info, err := os.Stat(full)
		if err != nil || info.IsDir() {
			continue
		}
		if info.Mode()&0o111 != 0 {
			return full, nil
		}
		found = syscall.EACCES
	}
	return "", &fs.PathError{Op: "exec", Path: cmd, Err: found}
}
