package files

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"strconv"
	"time"

	"github.com/billethq/billet/internal/errs"
)

const (
	headerToken = "X-Access-Token"
	// The operations that a signature allows.
	opRead  = "read"
	opWrite = "write"
)

// Sign returns the signature that allows one operation ("read" or "write") on
// one path, as the client writes it in the request, to one user ("" for the
// default one), until expires, or for ever where that is "".
func Sign(token, path, operation, user, expires string) string {
	text := path + ":" + operation + ":" + user + ":" + token
	if expires != "" {
		text += ":" + expires
	}
	sum := sha256.Sum256([]byte(text))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// Authorize refuses a request that neither shows the token nor, for /files, is
// signed with it. An empty token lets everything pass. Whoever keeps a guest's
// door may ask it before the request reaches the guest.
func Authorize(r *http.Request, token string, now time.Time) error {
	if token == "" {
		return nil
	}
	if shown := r.Header.Get(headerToken); shown != "" {
		if !same(shown, token) {
			return errs.New(errs.Unauthenticated, "the access token is not this sandbox's")
		}
		return nil
	}
	q := r.URL.Query()
	if r.URL.Path != filesPath || !q.Has("signature") {
		return errs.New(errs.Unauthenticated, "access token or signature is missing")
	}
	operation := opRead
	if r.Method == http.MethodPost {
		operation = opWrite
	}
	expires := q.Get("signature_expiration")
	if !same(q.Get("signature"), Sign(token, q.Get("path"), operation, q.Get("username"), expires)) {
		return errs.New(errs.Unauthenticated, "the signature does not fit the request")
	}
	if expires == "" {
		return nil
	}
	until, err := strconv.ParseInt(expires, 10, 64)
	if err != nil || until < now.Unix() {
		return errs.New(errs.Unauthenticated, "the signature has expired")
	}
	return nil
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
