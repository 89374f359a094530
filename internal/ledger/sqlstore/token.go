package sqlstore

import (
	"context"
	"fmt"
	"time"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

// tokenUse is how often the use of a token is noted: a write per request would
// make every read of the API wait for a disk.
const tokenUse = time.Hour

const selectTokens = "SELECT t.id, t.tenant, t.region, t.principal, t.name, t.hash, t.created, t.expires, t.last_used, " +
	principalColumns + " FROM tokens t JOIN principals p ON p.id = t.principal"

func scanToken(r row) (rec ledger.TokenRecord, err error) {
	k := &rec.Token
	err = r.Scan(append([]any{&k.ID, &k.Tenant, &k.Region, &k.Principal, &k.Name, digest{&k.Hash},
		at{&k.Created}, at{&k.Expires}, at{&k.LastUsed}}, principalDest(&rec.Principal)...)...)
	return rec, err
}

func aboutToken(k model.Token) about {
	return about{k.Tenant, k.Region, "token", string(k.ID)}
}

// CreateToken implements ledger.Ledger.
func (s *Store) CreateToken(ctx context.Context, m ledger.Meta, p model.Principal, k model.Token) (got model.Principal, err error) {
	err = s.write(ctx, m, fmt.Sprintf("create token %q", k.Name), func(t *tx) error {
		if _, taken, err := one(t, scalar[string], "SELECT id FROM tokens WHERE name = ?", k.Name); err != nil {
			return err
		} else if taken {
			return errs.New(errs.Conflict, "the name is taken").WithHint("choose another name; `billet token ls` lists them")
		}
		if got, err = t.ensurePrincipal(p); err != nil {
			return err
		}
		k.Tenant, k.Region, k.Principal = got.Tenant, got.Region, got.ID
		if err := t.exec("INSERT INTO tokens (id, tenant, region, principal, name, hash, created, expires, last_used) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
			k.ID, k.Tenant, k.Region, k.Principal, k.Name, k.Hash, t.meta.Now, k.Expires, time.Time{}); err != nil {
			return err
		}
		return t.emit(ledger.EventTokenCreated, aboutToken(k), map[string]string{"name": k.Name, "principal": string(k.Principal)})
	})
	if err != nil {
		return model.Principal{}, err
	}
	return got, nil
}

// Tokens implements ledger.Ledger.
func (s *Store) Tokens(ctx context.Context, tenant model.TenantID) (tokens []ledger.TokenRecord, err error) {
	err = s.read(ctx, "list tokens", func(t *tx) error {
		tokens, err = all(t, scanToken, selectTokens+" WHERE t.tenant = ? ORDER BY t.name", tenant)
		return err
	})
	return tokens, err
}

// DeleteToken implements ledger.Ledger.
func (s *Store) DeleteToken(ctx context.Context, m ledger.Meta, tenant model.TenantID, ref string) error {
	return s.write(ctx, m, fmt.Sprintf("delete token %q", ref), func(t *tx) error {
		rec, found, err := one(t, scanToken, selectTokens+" WHERE t.tenant = ? AND (t.id = ? OR t.name = ?) ORDER BY (t.id = ?) DESC", tenant, ref, ref, ref)
		if err != nil {
			return err
		}
		if !found {
			return errs.New(errs.NotFound, "there is no such token").WithHint("`billet token ls` lists them")
		}
		if err := t.exec("DELETE FROM tokens WHERE id = ?", rec.Token.ID); err != nil {
			return err
		}
		if err := t.emit(ledger.EventTokenDeleted, aboutToken(rec.Token), map[string]string{"name": rec.Token.Name}); err != nil {
			return err
		}
		_, more, err := one(t, scalar[string], "SELECT id FROM tokens WHERE principal = ? LIMIT 1", rec.Principal.ID)
		if err != nil || more {
			return err
		}
		return t.removePrincipal(rec.Principal)
	})
}

// TokenByHash implements ledger.Ledger.
func (s *Store) TokenByHash(ctx context.Context, m ledger.Meta, hash [32]byte) (ledger.TokenRecord, error) {
	now := stamp(m.Now)
	var rec ledger.TokenRecord
	if err := s.read(ctx, "find token", func(t *tx) (err error) {
		found := false
		if rec, found, err = one(t, scanToken, selectTokens+" WHERE t.hash = ?", hash); err != nil {
			return err
		}
		if !found || !rec.Token.Expires.IsZero() && !rec.Token.Expires.After(now) {
			return errs.New(errs.Unauthenticated, "the token is not known or has expired").WithHint("ask an administrator for `billet token create`")
		}
		return nil
	}); err != nil {
		return ledger.TokenRecord{}, err
	}
	if now.Sub(rec.Token.LastUsed) < tokenUse {
		return rec, nil
	}
	// The token may be gone by now: then no row changes, and this one call was
	// answered as of a moment ago. A full disk must not lock everybody out.
	if err := s.write(ctx, m, "note use of token", func(t *tx) error {
		return t.exec("UPDATE tokens SET last_used = ? WHERE id = ? AND last_used < ?", now, rec.Token.ID, now)
	}); err != nil {
		if ctx.Err() == nil { // a caller that hung up is no news
			s.log.Warn("token_use_not_noted", "token", rec.Token.ID, "error", err)
		}
		return rec, nil
	}
	rec.Token.LastUsed = now
	return rec, nil
}
