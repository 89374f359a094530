package e2b

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// maxForks bounds the sandboxes of one request.
const maxForks = 20

// rawObject is JSON that is kept as it is.
type rawObject = json.RawMessage

func orEmpty(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("{}")
	}
	return raw
}

// forked is the answer for one of them.
type forked struct {
	Sandbox *sandbox `json:"sandbox,omitempty"`
	Error   *problem `json:"error,omitempty"`
}

// fork makes sandboxes that begin where this one is.
func (h *Handler) fork(x *exchange) error {
	req, err := read[struct {
		Timeout *int64 `json:"timeout"`
		Count   *int   `json:"count"`
	}](x)
	if err != nil {
		return err
	}
	timeout, err := timeoutOf(req.Timeout, connectTimeout)
	if err != nil {
		return err
	}
	count := 1
	if req.Count != nil {
		count = *req.Count
	}
	if count < 1 || count > maxForks {
		return errs.New(errs.Invalid, "%d forks; 1 to %d are allowed", count, maxForks)
	}
	made, failed, err := h.cfg.Lending.ForkOnTerms(x.r.Context(), x.who, x.id(), count, h.cfg.Clock.Now().Add(timeout+createWait))
	if err != nil {
		return err
	}
	out := make([]forked, count)
	var all sync.WaitGroup
	for i := range made {
		all.Go(func() { out[i] = h.begun(x, made[i], failed[i], timeout) })
	}
	all.Wait()
	answer(x.w, http.StatusCreated, out)
	return nil
}

func (h *Handler) begun(x *exchange, o api.OnTerms, err error, timeout time.Duration) forked {
	if err != nil {
		p := problemOf(h.noRoom(x.r.Context(), x.who, o.Workspace.Tier, err))
		return forked{Error: &p}
	}
	s, err := h.short(o)
	if err == nil {
		err = h.begin(x.r.Context(), x.who, o, timeout)
	}
	if err != nil {
		p := problemOf(err)
		return forked{Error: &p}
	}
	return forked{Sandbox: &s}
}

// snapshot is the contract's.
type snapshot struct {
	ID    string   `json:"snapshotID"`
	Names []string `json:"names"`
}

func snapshotOf(k model.KeptSnapshot) snapshot {
	s := snapshot{ID: string(k.ID), Names: []string{}}
	if k.Name != "" {
		s.Names = append(s.Names, k.Name)
	}
	return s
}

// keepSnapshot saves a sandbox as it is, for others to begin from.
func (h *Handler) keepSnapshot(x *exchange) error {
	req, err := read[struct {
		Name string `json:"name"`
	}](x)
	if err != nil {
		return err
	}
	k, err := h.cfg.Lending.KeepSnapshot(x.r.Context(), x.who, x.id(), req.Name)
	if err != nil {
		return err
	}
	answer(x.w, http.StatusCreated, snapshotOf(k))
	return nil
}

func (h *Handler) listSnapshots(x *exchange) error {
	all, err := h.cfg.Lending.KeptSnapshots(x.r.Context(), x.who)
	if err != nil {
		return err
	}
	q := x.r.URL.Query()
	out := []snapshot{}
	for _, k := range all {
		if of := q.Get("sandboxID"); of != "" && of != string(k.Workspace) {
			continue
		}
		if name := q.Get("name"); name != "" && name != k.Name {
			continue
		}
		out = append(out, snapshotOf(k))
	}
	page, err := pageOf(x, out, func(s snapshot) string { return s.ID })
	if err != nil {
		return err
	}
	answer(x.w, http.StatusOK, page)
	return nil
}
