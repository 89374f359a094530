package e2b

import (
	"cmp"
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
)

// maxPage bounds a page, and is one where the client does not say.
const maxPage = 100

// filter selects sandboxes.
type filter struct {
	metadata     map[string]string
	states       []string // none: every state
	template     string
	startedAfter time.Time
}

func (f filter) takes(d detail) bool {
	for k, v := range f.metadata {
		if got, ok := d.Metadata[k]; !ok || got != v {
			return false
		}
	}
	return (len(f.states) == 0 || slices.Contains(f.states, d.State)) &&
		(f.template == "" || f.template == d.TemplateID) && d.StartedAt.After(f.startedAfter)
}

// list answers a page of sandboxes, the newest first.
func (h *Handler) list(x *exchange) error {
	q := x.r.URL.Query()
	f, err := filterOf(q)
	if err != nil {
		return err
	}
	all, err := h.cfg.Lending.AllOnTerms(x.r.Context(), x.who, false)
	if err != nil {
		return err
	}
	running := 0
	for _, o := range all {
		if stateOf(o.Workspace) == stateRunning {
			running++
		}
	}
	x.w.Header().Set("X-Total-Running", strconv.Itoa(running))
	found := selected(all, f)
	less := func(a, b detail) int {
		return cmp.Or(b.StartedAt.Compare(a.StartedAt), cmp.Compare(a.SandboxID, b.SandboxID))
	}
	switch q.Get("order") {
	case "", "desc":
	case "asc":
		newest := less
		less = func(a, b detail) int { return newest(b, a) }
	default:
		return errs.New(errs.Invalid, "order %q is neither asc nor desc", q.Get("order"))
	}
	slices.SortFunc(found, less)
	page, err := pageOf(x, found, func(d detail) string { return d.SandboxID })
	if err != nil {
		return err
	}
	answer(x.w, http.StatusOK, page)
	return nil
}

// listRunning is the list of older clients.
func (h *Handler) listRunning(x *exchange) error {
	f, err := filterOf(url.Values{"metadata": x.r.URL.Query()["metadata"], "state": {stateRunning}})
	if err != nil {
		return err
	}
	all, err := h.cfg.Lending.AllOnTerms(x.r.Context(), x.who, false)
	if err != nil {
		return err
	}
	answer(x.w, http.StatusOK, selected(all, f))
	return nil
}

func selected(all []api.OnTerms, f filter) []detail {
	out := []detail{}
	for _, o := range all {
		if d := listed(o); f.takes(d) {
			out = append(out, d)
		}
	}
	return out
}

func filterOf(q url.Values) (f filter, err error) {
	if f.metadata, err = metadataOf(q.Get("metadata")); err != nil {
		return f, err
	}
	for _, given := range q["state"] {
		for s := range strings.SplitSeq(given, ",") {
			if s != stateRunning && s != statePaused {
				return f, errs.New(errs.Invalid, "state %q is neither running nor paused", s)
			}
			f.states = append(f.states, s)
		}
	}
	f.template = q.Get("template")
	if after := q.Get("startedAfter"); after != "" {
		if f.startedAfter, err = time.Parse(time.RFC3339, after); err != nil {
			return f, errs.New(errs.Invalid, "startedAfter %q is no time", after)
		}
	}
	return f, nil
}

// metadataOf reads pairs that the clients encode twice more than a query is:
// the whole, and each key and value.
func metadataOf(s string) (map[string]string, error) {
	if s == "" {
		return nil, nil
	}
	whole, err := url.QueryUnescape(s)
	if err != nil {
		return nil, errs.New(errs.Invalid, "the metadata filter is not encoded as a query")
	}
	out := map[string]string{}
	for pair := range strings.SplitSeq(whole, "&") {
		k, v, ok := strings.Cut(pair, "=")
		key, err1 := url.QueryUnescape(k)
		value, err2 := url.QueryUnescape(v)
		if !ok || err1 != nil || err2 != nil {
			return nil, errs.New(errs.Invalid, "the metadata filter has a pair that is not key=value")
		}
		out[key] = value
	}
	return out, nil
}

// pageOf cuts a page out of what is sorted, and names the next. A page goes on
// after an id, so that none is told twice when some are gone meanwhile.
func pageOf[T any](x *exchange, all []T, id func(T) string) ([]T, error) {
	q := x.r.URL.Query()
	limit := maxPage
	if s := q.Get("limit"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > maxPage {
			return nil, errs.New(errs.Invalid, "limit %q is not a number from 1 to %d", s, maxPage)
		}
		limit = n
	}
	if token := q.Get("nextToken"); token != "" {
		place, err := base64.RawURLEncoding.DecodeString(token)
		after, index, ok := strings.Cut(string(place), " ")
		n, err2 := strconv.Atoi(index)
		if err != nil || err2 != nil || !ok || n < 0 {
			return nil, errs.New(errs.Invalid, "nextToken is not one that was answered")
		}
		if i := slices.IndexFunc(all, func(v T) bool { return id(v) == after }); i >= 0 {
			n = i + 1
		}
		all = all[min(n, len(all)):]
	}
	if len(all) > limit {
		last := id(all[limit-1])
		x.w.Header().Set("X-Next-Token", base64.RawURLEncoding.EncodeToString([]byte(last+" "+strconv.Itoa(limit))))
		all = all[:limit]
	}
	return all, nil
}
