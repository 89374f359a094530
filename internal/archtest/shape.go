package archtest

import (
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func checkComment(t *tree) []string {
	var out []string
	for _, p := range t.sorted() {
		var docs []*file
		var first *file
		for _, f := range p.files {
			if f.test {
				continue
			}
			if first == nil {
				first = f
			}
			if f.ast.Doc != nil && !f.generated {
				docs = append(docs, f)
			}
		}
		switch {
		case first == nil: // tests only
		case len(docs) == 0 && first.generated:
		case len(docs) == 0:
			out = append(out, t.at(first.ast, "package %s has no comment that says what it is for", p.dir))
		case len(docs) > 1:
			out = append(out, t.at(docs[1].ast, "package %s has a second comment; the first is in %s", p.dir, docs[0].name))
		default:
			out = append(out, t.checkDoc(p, docs[0])...)
		}
	}
	return out
}

func (t *tree) checkDoc(p *pkg, f *file) []string {
	begin := "Package " + f.ast.Name.Name + " "
	if f.ast.Name.Name == "main" {
		begin = "Command " + path.Base(p.dir) + " "
	}
	sentence, _, ended := strings.Cut(strings.ReplaceAll(f.ast.Doc.Text(), "\n", " ")+" ", ". ")
	if !strings.HasPrefix(sentence, begin) || !ended {
		return []string{t.at(f.ast, "the comment of %s is no sentence that begins %q", p.dir, begin)}
	}
	return nil
}

func checkNames(t *tree) []string {
	var out []string
	for _, p := range t.sorted() {
		for segment := range strings.SplitSeq(p.dir, "/") {
			if slices.Contains(vague(), segment) {
				out = append(out, t.at(p.files[0].ast, "package %s: %q says nothing", p.dir, segment))
			}
		}
	}
	return out
}

func checkSize(t *tree) []string {
	var out []string
	for _, p := range t.sorted() {
		for _, f := range p.files {
			if f.lines > maxLines && !f.generated && !longFiles().covers(f.name) {
				out = append(out, t.at(f.ast, "%d lines, more than %d", f.lines, maxLines))
			}
		}
	}
	return out
}

// checkMessages reads the texts of errors: the format strings of the calls
// that make them.
func checkMessages(t *tree) []string {
	makers := []struct {
		imported, name string
		arg            int // which argument is the text
	}{
		{"errors", "New", 0}, {"fmt", "Errorf", 0},
		{module + "/internal/errs", "New", 1}, {module + "/internal/errs", "Wrap", 2},
	}
	var out []string
	t.code(func(_ *pkg, f *file) {
		for _, m := range makers {
			pkg := f.importName(m.imported)
			made := f.calls(func(fn *ast.SelectorExpr) bool {
				x, ok := fn.X.(*ast.Ident)
				return ok && pkg != "" && x.Name == pkg && fn.Sel.Name == m.name
			})
			for _, call := range made {
				if len(call.Args) <= m.arg {
					continue
				}
				text, ok := literal(call.Args[m.arg])
				if complaint := badMessage(text); ok && complaint != "" {
					out = append(out, t.at(call, "error %q %s", text, complaint))
				}
			}
		}
	})
	return out
}

func literal(e ast.Expr) (string, bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(lit.Value)
	return text, err == nil
}

func badMessage(text string) string {
	switch {
	case regexp.MustCompile(`\b(failed to|unable to|could not|couldn't|error while|error when)\b`).MatchString(text):
		return "says that something failed; that is what an error is"
	case regexp.MustCompile(`^[A-Z][a-z]`).MatchString(text):
		return "begins with a capital"
	case strings.HasSuffix(text, ".") || strings.HasSuffix(text, "!") || strings.HasSuffix(text, "\n"):
		return "ends like a sentence"
	}
	return ""
}
