package files

import (
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/guest/userfs"
	"github.com/billethq/billet/internal/guest/users"
)

const (
	// maxParts bounds the files of one upload, whose names are kept until its end.
	maxParts = 10_000
	// metadataHeader begins the names of headers that are metadata.
	metadataHeader = "X-Metadata-"
)

// upload is one request's.
type upload struct {
	fs       *userfs.FS
	path     string // of the query
	named    bool   // the query has a path
	metadata map[string]string
	written  []entry
}

// upload writes the files in a request's body.
func (s *Service) upload(w http.ResponseWriter, r *http.Request) error {
	u, err := s.user(r)
	if err != nil {
		return err
	}
	metadata := metadataOf(r.Header)
	if err := userfs.CheckMetadata(metadata); err != nil {
		return err
	}
	body, err := decoded(r)
	if err != nil {
		return err
	}
	body = received{body}
	media, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	up := &upload{path: r.URL.Query().Get("path"), named: r.URL.Query().Has("path"), metadata: metadata, written: []entry{}}
	err = userfs.Do(s.cfg.Etc, u, func(fs *userfs.FS) error {
		up.fs = fs
		switch {
		case media == "application/octet-stream":
			return up.raw(body, u)
		case strings.HasPrefix(media, "multipart/") && params["boundary"] != "":
			return up.parts(multipart.NewReader(body, params["boundary"]), u)
		}
		return errs.New(errs.Invalid, "read the body: Content-Type %q is not supported, multipart/form-data and application/octet-stream are", media)
	})
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, up.written)
	return nil
}

// raw writes the body as one file.
func (up *upload) raw(body io.Reader, u users.User) error {
	if !up.named {
		return errs.New(errs.Invalid, "the query parameter path is missing")
	}
	return up.write(up.path, body, u)
}

// parts writes each part called file: to the query's path, or to its own name.
func (up *upload) parts(form *multipart.Reader, u users.User) error {
	for {
		part, err := form.NextPart()
		if err == io.EOF { // itself: wrapped it says that the form is cut off
			return nil
		}
		if err != nil {
			return errs.Wrap(errs.Invalid, err, "read the form")
		}
		if part.FormName() != "file" {
			continue // and skipped by NextPart
		}
		name := up.path
		if !up.named {
			if name = fileName(part); name == "" {
				return errs.New(errs.Invalid, "a part has no file name, and the query no path")
			}
		}
		if err := up.write(name, part, u); err != nil {
			return err
		}
	}
}

// fileName is a part's file name with its directories, which FileName drops.
func fileName(p *multipart.Part) string {
	_, params, err := mime.ParseMediaType(p.Header.Get("Content-Disposition"))
	if err != nil {
		return ""
	}
	return params["filename"]
}

func (up *upload) write(name string, content io.Reader, u users.User) error {
	path, err := userfs.Resolve(name, u)
	if err != nil {
		return err
	}
	if len(up.written) >= maxParts {
		return errs.New(errs.Invalid, "more than %d files in one upload", maxParts)
	}
	for _, e := range up.written {
		if e.Path == path {
			return errs.New(errs.Invalid, "two files of one upload have the path '%s'; the first is written", path)
		}
	}
	e, err := up.fs.Write(path, up.metadata, content)
	if err != nil {
		return err
	}
	up.written = append(up.written, newEntry(e))
	return nil
}

// metadataOf reads the headers that are metadata: of several with one name the
// first, and names in small letters.
func metadataOf(h http.Header) map[string]string {
	var m map[string]string
	for name, values := range h {
		key, ok := strings.CutPrefix(name, metadataHeader)
		if !ok || len(values) == 0 {
			continue
		}
		if m == nil {
			m = make(map[string]string)
		}
		m[strings.ToLower(key)] = values[0]
	}
	return m
}

// received tells an error of the request's body from one of the disk.
type received struct{ r io.Reader }

// Read reads the body.
func (b received) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		return n, errs.Wrap(errs.Invalid, err, "read the body")
	}
	return n, err
}
