package archtest

import (
	"maps"
	"slices"
	"strings"
)

func checkDown(t *tree) []string {
	var out []string
	t.shipped(func(p *pkg, f *file) {
		from, fromEntry, ok := layerOf(p.dir)
		if !ok {
			out = append(out, t.at(f.ast, "package %s has no place in the table of layers: give it one", p.dir))
			return
		}
		for imported, spec := range f.imports() {
			dir, ok := local(imported)
			if !ok {
				continue
			}
			to, toEntry, ok := layerOf(dir)
			if ok && to <= from && part(dir, toEntry) != part(p.dir, fromEntry) {
				out = append(out, t.at(spec, "%s imports %s, which is not below it", p.dir, dir))
			}
		}
	})
	return out
}

func checkAdapters(t *tree) []string {
	var out []string
	t.shipped(func(p *pkg, f *file) {
		_, fromEntry, _ := layerOf(p.dir)
		for imported, spec := range f.imports() {
			dir, _ := local(imported)
			_, entry, ok := layerOf(dir)
			if !ok || !slices.Contains(adapters(), entry) || testOnly().covers(dir) {
				continue
			}
			if !within(p.dir, "internal/daemon") && (fromEntry != entry || part(p.dir, entry) != part(dir, entry)) {
				out = append(out, t.at(spec, "%s names the adapter %s", p.dir, dir))
			}
		}
	})
	return out
}

func checkTestOnly(t *tree) []string {
	var out []string
	t.shipped(func(p *pkg, f *file) {
		for imported, spec := range f.imports() {
			if dir, ok := local(imported); ok && testOnly().covers(dir) {
				out = append(out, t.at(spec, "%s imports %s, which is for tests", p.dir, dir))
			}
			if imported == "testing" || strings.HasPrefix(imported, "testing/") {
				out = append(out, t.at(spec, "%s imports %s", p.dir, imported))
			}
		}
	})
	return out
}

func checkConfined(t *tree) []string {
	var out []string
	table := confined()
	t.shipped(func(p *pkg, f *file) {
		for imported, spec := range f.imports() {
			for _, mod := range slices.Sorted(maps.Keys(table)) {
				if isOrBelow(imported, mod) && !table[mod].covers(p.dir) {
					out = append(out, t.at(spec, "%s imports %s, whose home is %s", p.dir, imported, table[mod]))
				}
			}
		}
	})
	return out
}

// String lists the places with what each is for.
func (e exceptions) String() string {
	var parts []string
	for _, x := range e {
		parts = append(parts, x.place+" ("+x.why+")")
	}
	return strings.Join(parts, ", ")
}

func isOrBelow(imported, prefix string) bool {
	return imported == prefix || strings.HasPrefix(imported, prefix+"/")
}
