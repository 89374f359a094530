package sqlstore

import (
	"slices"
	"testing"
)

// TestSchema_Rules reads the schema as the database sees it.
func TestSchema_Rules(t *testing.T) {
	s := bare(t)
	if err := s.migrate(t.Context(), embedded()); err != nil {
		t.Fatal(err)
	}
	tables := s.strings(t, "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name <> 'migrations'")
	want := []string{
		"deployments", "events", "flush_intents", "generations", "holds", "idempotency", "idle_counts", "images", "instances", "kept_snapshots",
		"nodes", "principals", "shares", "sleeps", "snapshots", "ssh_keys", "subjects", "tenants", "terms", "tokens", "workspaces",
	}
	if slices.Sort(tables); !slices.Equal(tables, want) {
		t.Errorf("tables are %v, want %v", tables, want)
	}
	for _, table := range tables {
		columns := s.strings(t, "SELECT name FROM pragma_table_info('"+table+"')")
		// invariant 11: every record has a tenant and a region.
		if !slices.Contains(columns, "tenant") || !slices.Contains(columns, "region") {
			t.Errorf("table %s has no tenant or no region: %v", table, columns)
		}
		// invariant 1: of what is durable nothing knows where it ran; instances do.
		for _, column := range []string{"node", "host", "instance"} {
			if slices.Contains(columns, column) && table != "instances" && table != "flush_intents" {
				t.Errorf("table %s has a column %s", table, column)
			}
		}
	}
}

func (s *Store) strings(t *testing.T, query string) (out []string) {
	t.Helper()
	if err := s.read(t.Context(), "read schema", func(tx *tx) (err error) {
		out, err = all(tx, scalar[string], query)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return out
}
