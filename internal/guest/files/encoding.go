package files

import (
	"compress/gzip"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/billethq/billet/internal/errs"
)

// accepted chooses the coding of an answer, "gzip" or "", by Accept-Encoding:
// the one of the larger weight, gzip where both have the same and it is named.
func accepted(header string) (string, error) {
	if strings.TrimSpace(header) == "" {
		return "", nil
	}
	weights := map[string]float64{}
	for _, part := range strings.Split(header, ",") {
		name, params, _ := strings.Cut(part, ";")
		if name = strings.ToLower(strings.TrimSpace(name)); name != "" {
			weights[name] = weight(params)
		}
	}
	rest, anything := weights["*"]
	zip, named := weights["gzip"]
	plain, said := weights["identity"]
	if !said {
		// Acceptable unless refused; with no weight of its own, the last choice.
		if plain = 0.001; anything {
			plain = rest
		}
	}
	if !named && anything && plain == 0 {
		zip = rest
	}
	switch {
	case zip > 0 && zip >= plain:
		return "gzip", nil
	case plain > 0:
		return "", nil
	}
	return "", errs.Wrap(errs.Unsupported, errNotAcceptable, "read Accept-Encoding")
}

// weight reads ";q=0.5", 1 where it says nothing that can be read.
func weight(params string) float64 {
	for _, p := range strings.Split(params, ";") {
		k, v, _ := strings.Cut(strings.TrimSpace(p), "=")
		if q, err := strconv.ParseFloat(strings.TrimSpace(v), 64); err == nil && strings.EqualFold(strings.TrimSpace(k), "q") && q >= 0 && q <= 1 {
			return q
		}
	}
	return 1
}

// decoded is a request's body without its coding.
func decoded(r *http.Request) (io.Reader, error) {
	switch coding := strings.ToLower(strings.TrimSpace(r.Header.Get("Content-Encoding"))); coding {
	case "", "identity":
		return r.Body, nil
	case "gzip":
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, errs.Wrap(errs.Invalid, err, "decompress the body")
		}
		return z, nil
	default:
		return nil, errs.New(errs.Invalid, "read the body: Content-Encoding %q is not supported, identity and gzip are", coding)
	}
}
