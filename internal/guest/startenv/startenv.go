// Package startenv adds environment variables to a request that starts a
// process, on its way to the guest.
//
// The sandbox contract lets a client name variables for every command of a
// sandbox. They are added at the door, where each request passes, so that a
// guest need not keep them: what it keeps lies in its memory images.
package startenv

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"io"
	"mime"
	"net/http"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/guest"
	pb "github.com/billethq/billet/internal/guest/processpb"
	"github.com/billethq/billet/internal/guest/processpb/processpbconnect"
)

// headerSize is that of an envelope: flags, and the length of the message.
const headerSize = 5

// flagCompressed is the envelope's.
const flagCompressed = 1

// Applies reports whether r starts a process.
func Applies(r *http.Request) bool {
	return r.Method == http.MethodPost && r.URL.Path == processpbconnect.ProcessStartProcedure
}

// Add replaces the body of a request that starts a process by one whose
// variables are envs and, where the request names the same, its own.
func Add(r *http.Request, envs map[string]string) error {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return errs.New(errs.Invalid, "the request has no valid Content-Type")
	}
	codec, ok := strings.CutPrefix(media, "application/connect+")
	if !ok || codec != "json" && codec != "proto" {
		return errs.New(errs.Invalid, "content type %q is not of the Connect protocol", media)
	}
	message, err := read(r)
	if err != nil {
		return err
	}
	var start pb.StartRequest
	if codec == "json" {
		err = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(message, &start)
	} else {
		err = proto.Unmarshal(message, &start)
	}
	if err != nil {
		return errs.New(errs.Invalid, "the start request cannot be read: %v", err)
	}
	if start.Process == nil {
		start.Process = &pb.ProcessConfig{}
	}
	if start.Process.Envs == nil {
		start.Process.Envs = map[string]string{}
	}
	for k, v := range envs {
		if _, own := start.Process.Envs[k]; !own {
			start.Process.Envs[k] = v
		}
	}
	if codec == "json" {
		message, err = protojson.Marshal(&start)
	} else {
		message, err = proto.Marshal(&start)
	}
	if err != nil {
		return errs.Wrap(errs.Internal, err, "encode the start request")
	}
	body := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))
	body = append(body, message...)
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.Header.Del("Content-Length")
	r.Header.Del("Connect-Content-Encoding")
	return nil
}

// read returns the one message of the request.
func read(r *http.Request) ([]byte, error) {
	var head [headerSize]byte
	if _, err := io.ReadFull(r.Body, head[:]); err != nil {
		return nil, errs.New(errs.Invalid, "the start request is cut short")
	}
	size := binary.BigEndian.Uint32(head[1:])
	if size > guest.MaxMessage {
		return nil, errs.New(errs.Invalid, "the start request has %d bytes, at most %d are allowed", size, guest.MaxMessage)
	}
	message := make([]byte, size)
	if _, err := io.ReadFull(r.Body, message); err != nil {
		return nil, errs.New(errs.Invalid, "the start request is cut short")
	}
	if head[0]&flagCompressed == 0 {
		return message, nil
	}
	if r.Header.Get("Connect-Content-Encoding") != "gzip" {
		return nil, errs.New(errs.Invalid, "the start request has a compression that is not gzip")
	}
	z, err := gzip.NewReader(bytes.NewReader(message))
	if err == nil {
		message, err = io.ReadAll(io.LimitReader(z, guest.MaxMessage+1))
	}
	if err != nil || len(message) > guest.MaxMessage {
		return nil, errs.New(errs.Invalid, "the start request cannot be decompressed, or is too large")
	}
	return message, nil
}
