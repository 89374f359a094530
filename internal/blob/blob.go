// Package blob is the object port: where durable bytes live.
//
// An object is immutable once it is visible. A Put that returns nil is durable
// and visible to every later call from anywhere; a Put that fails may or may
// not have stored the object, never a part of it. Keys are slash-separated
// segments of [A-Za-z0-9._-], without empty, "." or ".." segments, at most 512
// bytes. Implementations are safe for concurrent use. Package blobtest is the
// conformance suite that each adapter runs.
package blob

import (
	"context"
	"io"
	"time"
)

// MaxObjectBytes bounds one object: a block with its header, or a root with
// its leaves, is far smaller; anything larger is refused as errs.Invalid.
const MaxObjectBytes = 8 << 20

// Bucket is a flat store of immutable objects.
//
// Errors: errs.NotFound from Get, Stat of a missing key; errs.Conflict from
// PutIfAbsent when the key exists; errs.Exhausted when the store is full;
// errs.Unavailable when it does not answer; errs.Invalid for a bad key or an
// object that is too large.
type Bucket interface {
	// Get returns the whole object.
	Get(ctx context.Context, key string) ([]byte, error)
	// Put stores the object, replacing one of the same key. Callers only
	// replace an object by the same content.
	Put(ctx context.Context, key string, body []byte) error
	// PutIfAbsent stores the object unless the key exists; of concurrent
	// calls for one key exactly one succeeds.
	PutIfAbsent(ctx context.Context, key string, body []byte) error
	// Stat returns an object's size and time of storing.
	Stat(ctx context.Context, key string) (Info, error)
	// Delete removes an object; deleting a missing one is no error.
	Delete(ctx context.Context, key string) error
	// List calls fn for each object whose key begins with prefix, in
	// ascending order of keys, until fn returns an error, which List returns.
	List(ctx context.Context, prefix string, fn func(Info) error) error
	io.Closer
}

// Info describes an object.
type Info struct {
	Key      string
	Size     int64
	Modified time.Time
}
