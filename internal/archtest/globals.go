package archtest

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

func checkInit(t *tree) []string {
	var out []string
	t.code(func(p *pkg, f *file) {
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				out = append(out, t.at(fn, "%s has an init function", p.dir))
			}
		}
	})
	return out
}

// checkGlobals lets a package-level variable be a table: given its value where
// it is declared, of a form that does not change, and never written.
func checkGlobals(t *tree) []string {
	var out []string
	t.code(func(p *pkg, f *file) {
		for _, d := range f.ast.Decls {
			decl, ok := d.(*ast.GenDecl)
			if !ok || decl.Tok != token.VAR {
				continue
			}
			for _, s := range decl.Specs {
				out = append(out, t.checkVars(p, decl, s.(*ast.ValueSpec))...)
			}
		}
	})
	return out
}

func (t *tree) checkVars(p *pkg, decl *ast.GenDecl, spec *ast.ValueSpec) []string {
	var out []string
	for i, name := range spec.Names {
		switch {
		case name.Name == "_" || embedded(decl, spec) || mutable().covers(p.dir+"."+name.Name):
		case len(spec.Values) == 0:
			out = append(out, t.at(name, "%s.%s has no value yet, so something sets it", p.dir, name))
		case i < len(spec.Values) && !fixed(spec.Values[i]):
			out = append(out, t.at(name, "%s.%s may change: make it a function, or a field", p.dir, name))
		default:
			if w := p.writes(name.Name, spec); w != nil {
				out = append(out, t.at(w, "%s.%s is written", p.dir, name))
			}
		}
	}
	return out
}

// embedded reports whether a //go:embed directive fills the variable.
func embedded(decl *ast.GenDecl, spec *ast.ValueSpec) bool {
	for _, doc := range []*ast.CommentGroup{decl.Doc, spec.Doc} {
		if doc == nil {
			continue
		}
		for _, c := range doc.List {
			if strings.HasPrefix(c.Text, "//go:embed ") {
				return true
			}
		}
	}
	return false
}

// fixed reports whether a value stays what it is as long as nobody assigns to
// its variable: literals, functions and the results of known constructors.
func fixed(value ast.Expr) bool {
	switch v := value.(type) {
	case *ast.BasicLit, *ast.FuncLit, *ast.Ident, *ast.SelectorExpr:
		return true
	case *ast.CompositeLit:
		return fixedType(v.Type)
	case *ast.UnaryExpr:
		return fixed(v.X)
	case *ast.BinaryExpr:
		return fixed(v.X) && fixed(v.Y)
	case *ast.ParenExpr:
		return fixed(v.X)
	case *ast.CallExpr:
		return fixedCall(v)
	}
	return false
}

// fixedType refuses literals of types that exist to change.
func fixedType(typ ast.Expr) bool {
	sel, ok := typ.(*ast.SelectorExpr)
	if !ok {
		return true
	}
	x, ok := sel.X.(*ast.Ident)
	return !ok || !slices.Contains([]string{"sync", "atomic", "bytes", "list"}, x.Name)
}

func fixedCall(call *ast.CallExpr) bool {
	switch fn := call.Fun.(type) {
	case *ast.ArrayType: // a conversion such as []byte("magic")
		return true
	case *ast.Ident: // a builtin or a conversion to a type of the package
		return slices.Contains([]string{"string", "len", "min", "max"}, fn.Name) || ast.IsExported(fn.Name)
	case *ast.SelectorExpr:
		if x, ok := fn.X.(*ast.Ident); ok && slices.Contains(constructors(), x.Name+"."+fn.Sel.Name) {
			return true
		}
		// errs.New(…).WithHint(…)
		inner, ok := fn.X.(*ast.CallExpr)
		return ok && fixedCall(inner)
	}
	return false
}

// writes returns a place in the package that assigns to the variable, to a
// part of it, or takes its address.
func (p *pkg) writes(name string, spec *ast.ValueSpec) (found ast.Node) {
	is := func(e ast.Expr) bool {
		for {
			switch x := e.(type) {
			case *ast.IndexExpr:
				e = x.X
			case *ast.SelectorExpr:
				e = x.X
			case *ast.ParenExpr:
				e = x.X
			case *ast.StarExpr:
				e = x.X
			case *ast.Ident:
				// Without an object the name is another file's.
				return x.Name == name && (x.Obj == nil || x.Obj.Decl == spec)
			default:
				return false
			}
		}
	}
	for _, f := range p.files {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				if n.Tok != token.DEFINE && slices.ContainsFunc(n.Lhs, is) {
					found = n
				}
			case *ast.IncDecStmt:
				if is(n.X) {
					found = n
				}
			case *ast.UnaryExpr:
				if n.Op == token.AND && is(n.X) {
					found = n
				}
			case *ast.CallExpr:
				if fn, ok := n.Fun.(*ast.Ident); ok && (fn.Name == "delete" || fn.Name == "clear") && len(n.Args) > 0 && is(n.Args[0]) {
					found = n
				}
			}
			return found == nil
		})
	}
	return found
}
