package archtest

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// module is the import path of the repository's own packages.
const module = "github.com/billethq/billet"

// tree is the parsed repository.
type tree struct {
	fsys     fs.FS
	fset     *token.FileSet
	packages map[string]*pkg // by directory, such as "internal/model"
}

// pkg is one directory of Go files, with all build tags and all tests.
type pkg struct {
	dir   string
	files []*file
}

type file struct {
	name      string // from the repository's root
	test      bool
	generated bool
	lines     int
	ast       *ast.File
}

// load parses every Go file of the module: not those of the modules below it,
// nor what the go command ignores.
func load(fsys fs.FS) (*tree, error) {
	t := &tree{fsys: fsys, fset: token.NewFileSet(), packages: map[string]*pkg{}}
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		if d.IsDir() {
			_, notRoot := fs.Stat(fsys, path.Join(name, "go.mod"))
			if name != "." && (notRoot == nil || base == "testdata" || base == "build" || base[0] == '.' || base[0] == '_') {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(name) != ".go" || base[0] == '.' || base[0] == '_' {
			return nil
		}
		return t.parse(name)
	})
	return t, err
}

func (t *tree) parse(name string) error {
	text, err := fs.ReadFile(t.fsys, name)
	if err != nil {
		return err
	}
	// Objects are resolved within the file: that tells a local variable from
	// a package's of the same name.
	parsed, err := parser.ParseFile(t.fset, name, text, parser.ParseComments)
	if err != nil {
		return err
	}
	dir := path.Dir(name)
	if t.packages[dir] == nil {
		t.packages[dir] = &pkg{dir: dir}
	}
	t.packages[dir].files = append(t.packages[dir].files, &file{
		name:      name,
		test:      strings.HasSuffix(name, "_test.go"),
		generated: ast.IsGenerated(parsed),
		lines:     bytes.Count(text, []byte("\n")),
		ast:       parsed,
	})
	return nil
}

// sorted returns the packages in the order of their paths.
func (t *tree) sorted() []*pkg {
	out := make([]*pkg, 0, len(t.packages))
	for _, p := range t.packages {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b *pkg) int { return strings.Compare(a.dir, b.dir) })
	return out
}

// code calls fn for each file that is compiled into a binary and was written
// by a person.
func (t *tree) code(fn func(*pkg, *file)) {
	for _, p := range t.sorted() {
		for _, f := range p.files {
			if !f.test && !f.generated {
				fn(p, f)
			}
		}
	}
}

// shipped is code without the packages that exist for tests.
func (t *tree) shipped(fn func(*pkg, *file)) {
	t.code(func(p *pkg, f *file) {
		if !testOnly().covers(p.dir) {
			fn(p, f)
		}
	})
}

// at formats one violation.
func (t *tree) at(n ast.Node, format string, args ...any) string {
	pos := t.fset.Position(n.Pos())
	return fmt.Sprintf("%s:%d: %s", pos.Filename, pos.Line, fmt.Sprintf(format, args...))
}

// imports returns a file's imports by path.
func (f *file) imports() map[string]*ast.ImportSpec {
	out := map[string]*ast.ImportSpec{}
	for _, spec := range f.ast.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err == nil {
			out[name] = spec
		}
	}
	return out
}

// local returns the directory of an import of this module.
func local(imported string) (dir string, ok bool) {
	return strings.CutPrefix(imported, module+"/")
}

// importName returns the name by which a file knows an imported package, ""
// when it does not import it.
func (f *file) importName(imported string) string {
	spec := f.imports()[imported]
	switch {
	case spec == nil:
		return ""
	case spec.Name != nil:
		return spec.Name.Name
	}
	return path.Base(imported)
}

// selections calls fn for each mention of an exported name of an imported
// package, such as time.Now.
func (f *file) selections(imported string, fn func(*ast.SelectorExpr)) {
	name := f.importName(imported)
	if name == "" {
		return
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			// A resolved identifier is a local variable that hides the package.
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == name && x.Obj == nil {
				fn(sel)
			}
		}
		return true
	})
}
