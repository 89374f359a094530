package files

import (
	"bufio"
	"compress/gzip"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"path"
	"time"

	"github.com/billethq/billet/internal/guest/userfs"
)

// streamBuffer is what a file whose size is unknown is read ahead by.
const streamBuffer = 64 << 10

// download sends a file, whole, in part (Range) or compressed.
func (s *Service) download(w http.ResponseWriter, r *http.Request) error {
	u, err := s.user(r)
	if err != nil {
		return err
	}
	name, err := userfs.Resolve(r.URL.Query().Get("path"), u)
	if err != nil {
		return err
	}
	// Read as the user too: some files of procfs ask who reads.
	return userfs.Do(s.cfg.Etc, u, func(fs *userfs.FS) error {
		file, info, err := fs.Open(name)
		if err != nil {
			return err
		}
		defer file.Close()
		coding, err := accepted(r.Header.Get("Accept-Encoding"))
		if err != nil {
			return err
		}
		h := w.Header()
		h.Set("Vary", "Accept-Encoding")
		h.Set("Content-Type", "application/octet-stream")
		h.Set("Content-Disposition", mime.FormatMediaType("inline", map[string]string{"filename": path.Base(name)}))
		if coding == "gzip" && info.Size() > 0 && !partial(r.Header) {
			h.Set("Content-Encoding", "gzip")
			compressed(w, r, file)
			return nil
		}
		return send(w, r, file, info.Size(), info.ModTime())
	})
}

// send sends a file as it is.
func send(w http.ResponseWriter, r *http.Request, file *os.File, size int64, modified time.Time) error {
	if size > 0 {
		http.ServeContent(w, r, "", modified, file)
		return nil
	}
	// Empty, or of a file system that makes content up as it is read.
	body := bufio.NewReaderSize(file, streamBuffer)
	if _, err := body.Peek(1); errors.Is(err, io.EOF) {
		http.ServeContent(w, r, "", modified, file)
		return nil
	} else if err != nil {
		return err
	}
	if r.Method == http.MethodHead {
		return nil
	}
	if _, err := io.Copy(w, body); err != nil {
		panic(http.ErrAbortHandler) // so that nobody takes it for the whole
	}
	return nil
}

// compressed sends a file compressed.
func compressed(w http.ResponseWriter, r *http.Request, file *os.File) {
	if r.Method == http.MethodHead {
		return
	}
	z := gzip.NewWriter(w)
	_, err := io.Copy(z, file)
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		panic(http.ErrAbortHandler)
	}
}

// partial reports whether a request asks for what only the file as it is can
// answer.
func partial(h http.Header) bool {
	for _, name := range []string{"Range", "If-Range", "If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since"} {
		if h.Get(name) != "" {
			return true
		}
	}
	return false
}
