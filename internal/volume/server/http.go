package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/volume/protocol"
)

// headerTime bounds how long a connection may take to say what it wants.
const headerTime = 10 * time.Second

// listen serves the control socket.
func (s *server) listen() (*http.Server, error) {
	l, err := s.place.Listen()
	if err != nil {
		return nil, err
	}
	api := &http.Server{Handler: s.handler(), ReadHeaderTimeout: headerTime}
	// Serve returns when the process ends: nobody else closes the listener.
	go func() {
		if err := api.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("control socket", "error", err)
		}
	}()
	return api, nil
}

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+protocol.PathStatus, func(w http.ResponseWriter, _ *http.Request) {
		st := s.status()
		reply(w, st, nil)
		s.room.tell(st.Faults...)
	})
	mux.HandleFunc("GET "+protocol.PathFault, func(w http.ResponseWriter, r *http.Request) {
		f, err := s.faults.first(r.Context(), s.closed)
		reply(w, f, err)
		s.room.tell(f)
	})
	call(mux, s, protocol.PathSeal, s.seal)
	call(mux, s, protocol.PathUpload, s.upload)
	call(mux, s, protocol.PathCommitted, s.committed)
	call(mux, s, protocol.PathUnmount, s.unmount)
	call(mux, s, protocol.PathClose, s.close)
	call(mux, s, protocol.PathSaveMemory, s.saveMemory)
	call(mux, s, protocol.PathLoadMemory, s.loadMemory)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		reply(w, nil, errs.New(errs.Unsupported, "%s %s is not in protocol version %d, which this volume process speaks", r.Method, r.URL.Path, protocol.Version).
			WithHint("stop the instance and start it again, so that its volume process is of the node's release"))
	})
	return mux
}

// call registers one changing call: decoded, one at a time, answered.
func call[In, Out any](mux *http.ServeMux, s *server, path string, fn func(context.Context, In) (Out, error)) {
	mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
		var in In
		if err := json.NewDecoder(io.LimitReader(r.Body, protocol.MaxDocument)).Decode(&in); err != nil {
			reply(w, nil, errs.Wrap(errs.Invalid, err, "read body of %s", path))
			return
		}
		if path == protocol.PathUnmount || path == protocol.PathClose {
			// There is no guest any more. Even a call that is under way may
			// wait for what is held.
			s.room.end()
		}
		s.calls.Lock()
		defer s.calls.Unlock()
		if s.ended {
			reply(w, nil, errs.New(errs.Conflict, "the volume is closed"))
			return
		}
		out, err := fn(r.Context(), in)
		if err != nil {
			s.log.Error("call failed", "path", path, "error", err)
		}
		reply(w, out, err)
	})
}

func reply(w http.ResponseWriter, out any, err error) {
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		w.WriteHeader(http.StatusUnprocessableEntity) // the kind tells
		out = protocol.NewProblem(err)
	}
	_ = json.NewEncoder(w).Encode(out) // the client is gone
}
