package archtest

import (
	"go/ast"
	"slices"
	"strings"
)

func checkPure(t *tree) []string {
	var out []string
	t.code(func(p *pkg, f *file) {
		if !slices.Contains(pure(), p.dir) || pureExceptions().covers(f.name) {
			return
		}
		for imported, spec := range f.imports() {
			for _, bad := range impure() {
				if isOrBelow(imported, bad) {
					out = append(out, t.at(spec, "%s imports %s", p.dir, imported))
				}
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				out = append(out, t.at(n, "%s starts a goroutine", p.dir))
			case *ast.ChanType, *ast.SelectStmt:
				out = append(out, t.at(n, "%s uses a channel", p.dir))
			case *ast.Ident:
				if n.Name == "NewID" {
					out = append(out, t.at(n, "%s makes an id; take it as an argument", p.dir))
				}
			}
			return true
		})
		f.selections("time", func(sel *ast.SelectorExpr) {
			if slices.Contains([]string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}, sel.Sel.Name) {
				out = append(out, t.at(sel, "%s reads the clock by time.%s", p.dir, sel.Sel.Name))
			}
		})
	})
	return out
}

// checkClock lets a connection's deadline be told by the machine's clock: the
// kernel that keeps it knows no other.
func checkClock(t *tree) []string {
	var out []string
	t.shipped(func(p *pkg, f *file) {
		if realClock().covers(f.name) {
			return
		}
		deadlines := f.calls(func(fn *ast.SelectorExpr) bool {
			return strings.HasPrefix(fn.Sel.Name, "Set") && strings.HasSuffix(fn.Sel.Name, "Deadline")
		})
		f.selections("time", func(sel *ast.SelectorExpr) {
			if slices.Contains([]string{"Now", "Since", "Until"}, sel.Sel.Name) && !inside(sel, deadlines) {
				out = append(out, t.at(sel, "%s reads the machine's clock by time.%s: take a clock.Clock, or measure by clock.Start", p.dir, sel.Sel.Name))
			}
		})
	})
	return out
}

func checkLogger(t *tree) []string {
	global := map[string][]string{
		"log/slog": {"Default", "SetDefault", "Debug", "Info", "Warn", "Error", "Log", "DebugContext", "InfoContext", "WarnContext", "ErrorContext"},
		"log":      {"Print", "Printf", "Println", "Fatal", "Fatalf", "Fatalln", "Panic", "Panicf", "Panicln", "SetOutput", "SetFlags"},
	}
	var out []string
	t.shipped(func(p *pkg, f *file) {
		for imported, names := range global {
			f.selections(imported, func(sel *ast.SelectorExpr) {
				if slices.Contains(names, sel.Sel.Name) {
					out = append(out, t.at(sel, "%s uses the global logger by %s.%s", p.dir, sel.X, sel.Sel.Name))
				}
			})
		}
	})
	return out
}

// checkSleep looks at tests only: in other code clock.Sleep waits.
func checkSleep(t *tree) []string {
	var out []string
	for _, p := range t.sorted() {
		for _, f := range p.files {
			if !f.test || sleepers().covers(f.name) {
				continue
			}
			synctest := f.importName("testing/synctest")
			bubbles := f.calls(func(fn *ast.SelectorExpr) bool {
				x, ok := fn.X.(*ast.Ident)
				return ok && synctest != "" && x.Name == synctest
			})
			f.selections("time", func(sel *ast.SelectorExpr) {
				if sel.Sel.Name == "Sleep" && !inside(sel, bubbles) {
					out = append(out, t.at(sel, "sleeps outside a synctest bubble"))
				}
			})
		}
	}
	return out
}

// calls returns the calls of selected functions, such as x.F(…), that match.
func (f *file) calls(match func(fn *ast.SelectorExpr) bool) []*ast.CallExpr {
	var out []*ast.CallExpr
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if fn, ok := call.Fun.(*ast.SelectorExpr); ok && match(fn) {
				out = append(out, call)
			}
		}
		return true
	})
	return out
}

// inside reports whether n lies in one of the calls.
func inside(n ast.Node, calls []*ast.CallExpr) bool {
	return slices.ContainsFunc(calls, func(c *ast.CallExpr) bool { return c.Pos() <= n.Pos() && n.End() <= c.End() })
}
