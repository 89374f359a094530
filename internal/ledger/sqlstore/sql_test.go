package sqlstore

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/billethq/billet/internal/model"
)

func TestRebind(t *testing.T) {
	numbered, plain := Store{dialect: Dialect{Numbered: true}}, Store{}
	for in, want := range map[string]string{
		"": "", "SELECT 1": "SELECT 1", "a = ?": "a = $1", "(?, ?,?)": "($1, $2,$3)",
		strings.Repeat("?", 11): "$1$2$3$4$5$6$7$8$9$10$11",
	} {
		if got := numbered.rebind(in); got != want {
			t.Errorf("rebind %q gave %q, want %q", in, got, want)
		}
		if got := plain.rebind(in); got != in {
			t.Errorf("plain rebind %q gave %q", in, got)
		}
	}
}

func TestCut_KeepsCharactersWhole(t *testing.T) {
	for _, c := range []struct {
		in   string
		n    int
		want string
	}{{"abc", 3, "abc"}, {"abcd", 3, "abc"}, {"aé", 2, "a"}, {"é", 1, ""}, {"", 0, ""}, {"\xff\xff", 2, ""}, {"\xff\xff", 3, "\uFFFD"}, {"a\x00", 4, "a\uFFFD"}} {
		if got := cut(c.in, c.n); got != c.want {
			t.Errorf("cut %q to %d gave %q, want %q", c.in, c.n, got, c.want)
		}
	}
}

// TestIsLive_AgreesWithTheModel holds the words of the SQL, in the statements
// and in the indexes, to the one definition.
func TestIsLive_AgreesWithTheModel(t *testing.T) {
	var over []string
	for _, s := range model.InstanceStates() {
		if !s.Live() {
			over = append(over, "'"+string(s)+"'")
		}
	}
	if len(over) != 2 {
		t.Fatalf("states that are not live: %v", over)
	}
	for _, s := range over {
		if !strings.Contains(isLive, s) || strings.Count(isLive, "'") != 2*len(over) {
			t.Errorf("%q does not say that all but %v are live", isLive, over)
		}
	}
	schema, err := fs.ReadFile(embedded(), "0001_records.sql")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(schema), "WHERE "+isLive); n != 3 {
		t.Errorf("%d partial indexes are over %q, want 3", n, isLive)
	}
}
