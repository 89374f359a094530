package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// problem is one mistake in a file.
type problem struct {
	line int
	text string
	hint string
}

// reader walks a YAML tree and collects every mistake instead of stopping at
// the first one.
type reader struct{ problems []problem }

func (r *reader) add(n *yaml.Node, hint, format string, args ...any) {
	r.problems = append(r.problems, problem{line: n.Line, text: fmt.Sprintf(format, args...), hint: hint})
}

// field reads the value of one key; path is its full name, for messages.
type field struct {
	key  string
	read func(path string, value *yaml.Node)
}

// mapping reads each key of n by the field of that name; others, and repeated
// ones, are mistakes. It returns the nodes of the keys that were there.
func (r *reader) mapping(path string, n *yaml.Node, fields ...field) map[string]*yaml.Node {
	seen := map[string]*yaml.Node{}
	if n.Kind != yaml.MappingNode {
		r.add(n, "write its settings as key: value, indented below it", "%s is %s, not a mapping", orFile(path), kindName(n))
		return seen
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := slices.IndexFunc(fields, func(f field) bool { return f.key == key.Value })
		switch {
		case at < 0:
			r.add(key, suggest(key.Value, fields), "unknown key %q", join(path, key.Value))
		case seen[key.Value] != nil:
			r.add(key, "remove one of them", "key %q appears twice, first on line %d", join(path, key.Value), seen[key.Value].Line)
		default:
			seen[key.Value] = key
			fields[at].read(join(path, key.Value), value)
		}
	}
	return seen
}

// list calls read for each item of a sequence.
func (r *reader) list(path string, n *yaml.Node, read func(path string, item *yaml.Node)) {
	if n.Kind != yaml.SequenceNode {
		r.add(n, "write it as a list, one item a line after a dash", "%s is %s, not a list", path, kindName(n))
		return
	}
	for i, item := range n.Content {
		read(path+"["+strconv.Itoa(i)+"]", item)
	}
}

// scalar returns the text of a plain value.
func (r *reader) scalar(path string, n *yaml.Node) (string, bool) {
	if n.Kind != yaml.ScalarNode {
		r.add(n, "", "%s is %s, not a single value", path, kindName(n))
		return "", false
	}
	if n.Tag == "!!null" || n.Value == "" {
		r.add(n, "give it a value or remove the key", "%s is empty", path)
		return "", false
	}
	return n.Value, true
}

// The readers of values. Each checks with its own rule after the shape is
// right, so that every mistake of a value is found in one pass.

// off is the word for what shall not be there.
const off = "off"

// optional is text for what can be turned off, which is "".
func (r *reader) optional(into *string, check func(string) error) func(string, *yaml.Node) {
	return func(path string, n *yaml.Node) {
		if s, ok := r.scalar(path, n); ok && s == off {
			*into = ""
			return
		}
		r.text(into, check)(path, n)
	}
}

func (r *reader) text(into *string, check func(string) error) func(string, *yaml.Node) {
	return func(path string, n *yaml.Node) {
		s, ok := r.scalar(path, n)
		if !ok {
			return
		}
		if check != nil {
			if err := check(s); err != nil {
				r.invalid(path, n, err)
				return
			}
		}
		*into = s
	}
}

func (r *reader) size(into *int64, low, high int64) func(string, *yaml.Node) {
	return func(path string, n *yaml.Node) {
		s, ok := r.scalar(path, n)
		if !ok {
			return
		}
		v, err := ParseSize(s)
		switch {
		case err != nil:
			r.add(n, "write a whole number with KiB, MiB, GiB or TiB", "%s: %v", path, err)
		case v < low || v > high:
			r.add(n, "", "%s is %s, allowed are %s to %s", path, s, FormatSize(low), FormatSize(high))
		default:
			*into = v
		}
	}
}

func (r *reader) integer(into *int, low, high int) func(string, *yaml.Node) {
	return func(path string, n *yaml.Node) {
		s, ok := r.scalar(path, n)
		if !ok {
			return
		}
		v, err := strconv.Atoi(s)
		switch {
		case err != nil:
			r.add(n, "", "%s: %q is not a whole number", path, s)
		case v < low || v > high:
			r.add(n, "", "%s is %d, allowed are %d to %d", path, v, low, high)
		default:
			*into = v
		}
	}
}

func (r *reader) duration(into *time.Duration, low, high time.Duration) func(string, *yaml.Node) {
	return func(path string, n *yaml.Node) {
		s, ok := r.scalar(path, n)
		if !ok {
			return
		}
		v, err := parseDuration(s)
		switch {
		case err != nil:
			r.add(n, "write a number with s, m or h", "%s: %v", path, err)
		case v < low || v > high:
			r.add(n, "", "%s is %s, allowed are %s to %s", path, s, low, high)
		default:
			*into = v
		}
	}
}

func kindName(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	case yaml.ScalarNode:
		if n.Tag == "!!null" || n.Value == "" {
			return "empty"
		}
		return "a single value"
	}
	return "something else"
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func orFile(path string) string {
	if path == "" {
		return "the file"
	}
	return path
}

// suggest names the known key nearest to a mistyped one, or all of them.
func suggest(key string, fields []field) string {
	best, distance := "", 3
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.key
		if d := edits(key, f.key); d < distance {
			best, distance = f.key, d
		}
	}
	if best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	return "known here: " + strings.Join(names, ", ")
}

// edits is the Levenshtein distance of two short words.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
