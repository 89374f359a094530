package archtest

import (
	"fmt"
	"go/ast"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// checkMap compares the drawing under "Layers" with the table.
func checkMap(t *tree) []string {
	const doc = "docs/ARCHITECTURE.md"
	text, err := fs.ReadFile(t.fsys, doc)
	if err != nil {
		return []string{err.Error()}
	}
	_, section, _ := strings.Cut(string(text), "\n## Layers\n")
	_, drawing, _ := strings.Cut(section, "\n```\n")
	drawing, _, _ = strings.Cut(drawing, "\n```\n")
	rows := strings.Split(drawing, "\n")
	var out []string
	for i, row := range layers() {
		want := strings.ReplaceAll(strings.Join(row, "  "), "internal/", "")
		if i >= len(rows) || rows[i] != want {
			out = append(out, fmt.Sprintf("%s: line %d of the layers is not %q", doc, i+1, want))
		}
	}
	if len(rows) > len(layers()) {
		out = append(out, fmt.Sprintf("%s: the layers have %d lines, want %d", doc, len(rows), len(layers())))
	}
	return out
}

// declared returns the constants of a type in a package, in their order.
func (t *tree) declared(dir, typ string) []*ast.Ident {
	var out []*ast.Ident
	if t.packages[dir] == nil {
		return nil
	}
	for _, f := range t.packages[dir].files {
		for _, d := range f.ast.Decls {
			decl, ok := d.(*ast.GenDecl)
			if !ok || f.test {
				continue
			}
			for _, s := range decl.Specs {
				if v, ok := s.(*ast.ValueSpec); ok {
					if id, ok := v.Type.(*ast.Ident); ok && id.Name == typ {
						out = append(out, v.Names...)
					}
				}
			}
		}
	}
	return out
}

// mentions returns the names of an imported package that code in a place
// mentions.
func (t *tree) mentions(imported, place string) map[string]bool {
	out := map[string]bool{}
	t.shipped(func(_ *pkg, f *file) {
		if within(f.name, place) {
			f.selections(imported, func(sel *ast.SelectorExpr) { out[sel.Sel.Name] = true })
		}
	})
	return out
}

func checkLists(t *tree) []string {
	var out []string
	for _, l := range lists() {
		listed := t.namesIn(l.dir, l.fn)
		for _, c := range t.declared(l.dir, l.typ) {
			if !listed[c.Name] {
				out = append(out, t.at(c, "%s is missing in %s", c, l.fn))
			}
		}
	}
	return out
}

// namesIn returns the identifiers in a function of a package.
func (t *tree) namesIn(dir, fn string) map[string]bool {
	out := map[string]bool{}
	if t.packages[dir] == nil {
		return out
	}
	for _, f := range t.packages[dir].files {
		for _, d := range f.ast.Decls {
			if decl, ok := d.(*ast.FuncDecl); ok && decl.Recv == nil && decl.Name.Name == fn {
				ast.Inspect(decl, func(n ast.Node) bool {
					if id, ok := n.(*ast.Ident); ok {
						out[id.Name] = true
					}
					return true
				})
			}
		}
	}
	return out
}

func checkFailpoints(t *tree) []string {
	for _, dir := range stepPackages() {
		if t.packages[dir] == nil {
			return nil // the thin path is not whole yet
		}
	}
	var out []string
	reached := t.mentions(module+"/internal/failpoint", "*")
	for _, step := range t.declared("internal/failpoint", "Step") {
		if !reached[step.Name] {
			out = append(out, t.at(step, "failpoint.%s is reached nowhere", step))
		}
	}
	return out
}

func checkKinds(t *tree) []string {
	var out []string
	for _, table := range kindTables() {
		if t.packages[table.place] == nil {
			continue
		}
		answered := t.mentions(module+"/internal/errs", table.place)
		for _, kind := range t.declared("internal/errs", "Kind") {
			if !answered[kind.Name] {
				out = append(out, t.at(kind, "errs.%s is not mentioned in %s, which gives %s", kind, table.place, table.why))
			}
		}
	}
	return out
}

// checkInvariants matches the headings "## N." of docs/INVARIANTS.md with the
// comments "// invariant N" of tests.
func checkInvariants(t *tree) []string {
	const doc = "docs/INVARIANTS.md"
	text, err := fs.ReadFile(t.fsys, doc)
	if err != nil {
		return []string{doc + ": " + err.Error()}
	}
	var out []string
	numbered := map[int]bool{}
	for _, m := range regexp.MustCompile(`(?m)^## (\d+)\. `).FindAllSubmatch(text, -1) {
		n, _ := strconv.Atoi(string(m[1]))
		if n != len(numbered)+1 {
			out = append(out, fmt.Sprintf("%s: invariant %d follows invariant %d", doc, n, len(numbered)))
		}
		numbered[n] = true
	}
	if len(numbered) == 0 {
		out = append(out, doc+": has no numbered invariants")
	}
	cited := map[int]bool{}
	for _, p := range t.sorted() {
		for _, f := range p.files {
			for c, n := range f.citations() {
				if !numbered[n] {
					out = append(out, t.at(c, "cites invariant %d, which %s does not have", n, doc))
				}
				// Suites of the ports are tests too.
				if f.test || testOnly().covers(p.dir) {
					cited[n] = true
				}
			}
		}
	}
	for n := range len(numbered) {
		if !cited[n+1] {
			out = append(out, fmt.Sprintf("%s: no test cites invariant %d", doc, n+1))
		}
	}
	return out
}

// citations yields the invariants that a file's comments cite.
func (f *file) citations() func(yield func(*ast.Comment, int) bool) {
	cite := regexp.MustCompile(`// [Ii]nvariants? (\d+(?:, \d+)*)`)
	return func(yield func(*ast.Comment, int) bool) {
		for _, group := range f.ast.Comments {
			for _, c := range group.List {
				m := cite.FindStringSubmatch(c.Text)
				if m == nil {
					continue
				}
				for number := range strings.SplitSeq(m[1], ", ") {
					if n, err := strconv.Atoi(number); err == nil && !yield(c, n) {
						return
					}
				}
			}
		}
	}
}

// maxDecision is a page.
const maxDecision = 80

func checkDecisions(t *tree) []string {
	var out []string
	names, _ := fs.Glob(t.fsys, "docs/decisions/*")
	slices.Sort(names)
	seen := map[string]string{}
	for _, name := range names {
		number := regexp.MustCompile(`^(\d{4})-[a-z0-9-]+\.md$`).FindStringSubmatch(path.Base(name))
		if number == nil {
			out = append(out, name+": is not named NNNN-title.md")
			continue
		}
		if first := seen[number[1]]; first != "" {
			out = append(out, name+": has the number of "+first)
		}
		seen[number[1]] = name
		text, err := fs.ReadFile(t.fsys, name)
		if err != nil {
			out = append(out, err.Error())
			continue
		}
		if n := strings.Count(string(text), "\n"); n > maxDecision {
			out = append(out, fmt.Sprintf("%s: %d lines are more than a page (%d)", name, n, maxDecision))
		}
		for _, part := range []string{"Context", "Choice", "Cost"} {
			if !regexp.MustCompile(`(?m)^(##+ |\*\*)` + part + `\b`).Match(text) {
				out = append(out, fmt.Sprintf("%s: has no part %q", name, part))
			}
		}
	}
	return out
}
