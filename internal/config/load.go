package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

const (
	// maxFileBytes bounds a configuration file: a thousand tiers fit.
	maxFileBytes = 1 << 20
	// maxProblems bounds what is reported of one file.
	maxProblems = 50
)

// The limits of values. They refuse typing mistakes, not ambition.
const (
	minMemory = 64 << 20 // below it no sandbox boots
	maxMemory = 16 << 40
	minDisk   = 64 << 20 // below it no file system with an image fits
	maxDisk   = 16 << 40 // of the volume format
	blockSize = 1 << 20  // disks are whole blocks of the volume format
	maxVCPUs  = 1024
	maxTasks  = 1 << 22 // the kernel's own limit of process ids
	maxFiles  = 1 << 20 // the kernel's default nr_open
	maxTiers  = 1000
	maxLive   = 1 << 20
)

// Load reads the file at path over the defaults; an empty path is the defaults
// alone. The error is errs.NotFound without the file, and errs.Invalid with
// every mistake in it, in the order of lines.
func Load(path string) (Config, error) {
	if path == "" {
		return Default(), nil
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Config{}, errs.New(errs.NotFound, "there is no configuration file %s", path).WithHint("leave --config away to run with the defaults")
	}
	if err != nil {
		return Config{}, errs.Wrap(errs.Invalid, err, "read configuration")
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return Config{}, errs.Wrap(errs.Invalid, err, "read configuration")
	}
	if len(data) > maxFileBytes {
		return Config{}, errs.New(errs.Invalid, "%s is larger than %s", path, FormatSize(maxFileBytes)).WithHint("is it a configuration file?")
	}
	return Parse(path, data)
}

// Parse reads the text of a file named name, as Load does.
func Parse(name string, data []byte) (Config, error) {
	c := Default()
	doc, err := parseYAML(data)
	if err != nil {
		// The library's message has the line.
		return Config{}, errs.New(errs.Invalid, "%s is not YAML: %s", name, strings.ReplaceAll(err.Error(), "\n", " ")).
			WithHint("look at the line named above: most often it is the indentation")
	}
	r := &reader{}
	if doc != nil {
		r.config(&c, doc)
	}
	if len(r.problems) > 0 {
		return Config{}, r.err(name)
	}
	return c, nil
}

// parseYAML returns the only document of a text, nil when it says nothing.
func parseYAML(data []byte) (*yaml.Node, error) {
	loader, err := yaml.NewLoader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	var doc, more yaml.Node
	if err := loader.Load(&doc); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	if err := loader.Load(&more); err == nil {
		return nil, fmt.Errorf("line %d: a second document begins", more.Line)
	} else if !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(doc.Content) == 0 || doc.Content[0].Kind == yaml.ScalarNode && doc.Content[0].Tag == "!!null" {
		return nil, nil
	}
	return doc.Content[0], nil
}

func (r *reader) config(c *Config, n *yaml.Node) {
	r.mapping("", n,
		field{"state", r.text(&c.State, checkAbsolute)},
		field{"api", func(path string, n *yaml.Node) {
			r.mapping(path, n, field{"listen", r.text(&c.APIListen, api.CheckLoopback)})
		}},
		field{"gateway", func(path string, n *yaml.Node) {
			r.mapping(path, n,
				field{"listen", r.text(&c.GatewayListen, api.CheckLoopback)},
				field{"ssh", r.optional(&c.SSHListen, api.CheckLoopback)},
				field{"token_file", r.text(&c.GatewayTokenFile, checkAbsolute)},
				field{"http", r.optional(&c.EntranceListen, api.CheckLoopback)},
				field{"domain", r.text(&c.EntranceDomain, checkDomain)},
				field{"resume_deadline", r.duration(&c.ResumeDeadline, time.Second, 10*time.Minute)})
		}},
		field{"node", func(path string, n *yaml.Node) { r.node(&c.Node, path, n) }},
		field{"store", func(path string, n *yaml.Node) {
			r.mapping(path, n, field{"dir", r.text(&c.StoreDir, checkAbsolute)})
		}},
		field{"flush_every", r.duration(&c.FlushEvery, time.Second, 24*time.Hour)},
		field{"stop_grace", r.duration(&c.StopGrace, 0, 10*time.Minute)},
		field{"memory", func(path string, n *yaml.Node) { r.memory(c, path, n) }},
		field{"tiers", func(path string, n *yaml.Node) { r.tiers(&c.Tiers, path, n) }},
	)
}

// maxWindow bounds how long a memory image may be kept.
const maxWindow = 365 * 24 * time.Hour

// memory reads how long memory images are kept.
func (r *reader) memory(c *Config, path string, n *yaml.Node) {
	windows := map[model.Class]*time.Duration{model.ClassHuman: new(time.Duration), model.ClassAgent: new(time.Duration), model.ClassCI: new(time.Duration)}
	r.mapping(path, n,
		field{"keep", r.window(&c.MemoryKeep)},
		field{"classes", func(path string, n *yaml.Node) {
			fields := []field{}
			for _, class := range []model.Class{model.ClassHuman, model.ClassAgent, model.ClassCI} {
				fields = append(fields, field{string(class), r.window(windows[class])})
			}
			r.mapping(path, n, fields...)
		}})
	c.ClassMemoryKeep = map[model.Class]time.Duration{}
	for class, d := range windows {
		if *d != 0 {
			c.ClassMemoryKeep[class] = *d
		}
	}
}

// window reads a decay window; 0s is model.KeepNothing.
func (r *reader) window(into *time.Duration) func(string, *yaml.Node) {
	return func(path string, n *yaml.Node) {
		r.duration(into, 0, maxWindow)(path, n)
		if *into == 0 {
			*into = model.KeepNothing
		}
	}
}

func (r *reader) node(c *Node, path string, n *yaml.Node) {
	r.mapping(path, n,
		field{"name", r.text(&c.Name, checkName("node"))},
		field{"driver", r.text((*string)(&c.Driver), checkDriver)},
		field{"server", r.text(&c.Server, func(s string) error { _, err := api.ParseEndpoint(s); return err })},
		field{"token_file", r.text(&c.TokenFile, checkAbsolute)},
		field{"cache", r.size(&c.CacheLimit, blockSize, 1<<50)},
		field{"capacity", func(path string, n *yaml.Node) {
			r.mapping(path, n,
				field{"vcpus", r.integer(&c.Capacity.VCPUs, 1, maxVCPUs)},
				field{"memory", r.size(&c.Capacity.Memory, minMemory, maxMemory)},
				field{"disk", r.size(&c.Capacity.Disk, minDisk, 1<<50)})
		}},
	)
}

// tiers replaces the default tiers as a whole: a file that names one tier
// means one.
func (r *reader) tiers(into *[]model.Tier, path string, n *yaml.Node) {
	var tiers []model.Tier
	first := map[string]int{}
	r.list(path, n, func(path string, n *yaml.Node) {
		t := r.tier(path, n)
		if line, taken := first[t.Name]; taken && t.Name != "" {
			r.add(n, "give each tier a name of its own", "%s: tier %q is on line %d already", path, t.Name, line)
		}
		first[t.Name] = n.Line
		tiers = append(tiers, t)
	})
	switch {
	case len(tiers) > maxTiers:
		r.add(n, "", "%s has %d tiers, at most %d are allowed", path, len(tiers), maxTiers)
	case len(tiers) == 0 && n.Kind == yaml.SequenceNode:
		r.add(n, "remove the key to have the default ones", "%s has no tier", path)
	}
	*into = tiers
}

func (r *reader) tier(path string, n *yaml.Node) model.Tier {
	t := model.Tier{
		Shape:   model.Shape{Processes: defaultProcesses, OpenFiles: defaultOpenFiles},
		Image:   defaultImage,
		Drivers: []model.DriverName{model.DriverGVisor},
	}
	seen := r.mapping(path, n,
		field{"name", r.text(&t.Name, checkName("tier"))},
		field{"vcpus", r.integer(&t.Shape.VCPUs, 1, maxVCPUs)},
		field{"memory", r.size(&t.Shape.Memory, minMemory, maxMemory)},
		field{"disk", r.disk(&t.Shape.Disk)},
		field{"processes", r.integer(&t.Shape.Processes, 16, maxTasks)},
		field{"open_files", r.integer(&t.Shape.OpenFiles, 64, maxFiles)},
		field{"image", r.text(&t.Image, checkName("image"))},
		field{"drivers", names(r, &t.Drivers, checkDriver)},
		field{"classes", names(r, &t.Classes, checkClass)},
		field{"max", r.integer(&t.Max, 0, maxLive)},
		field{"memory_keep", r.window(&t.MemoryKeep)},
	)
	if n.Kind == yaml.MappingNode {
		for _, key := range []string{"name", "vcpus", "memory", "disk"} {
			if seen[key] == nil {
				r.add(n, "every tier has name, vcpus, memory and disk", "%s has no %s", path, key)
			}
		}
	}
	return t
}

func (r *reader) disk(into *int64) func(string, *yaml.Node) {
	return func(path string, n *yaml.Node) {
		before := len(r.problems)
		r.size(into, minDisk, maxDisk)(path, n)
		if len(r.problems) == before && *into%blockSize != 0 {
			r.add(n, "", "%s is %s, not whole MiB", path, n.Value)
		}
	}
}

// names reads a list of words without repetition.
func names[T ~string](r *reader, into *[]T, check func(string) error) func(string, *yaml.Node) {
	return func(path string, n *yaml.Node) {
		var out []T
		r.list(path, n, func(path string, n *yaml.Node) {
			var s string
			r.text(&s, check)(path, n)
			if s != "" && slices.Contains(out, T(s)) {
				r.add(n, "remove one of them", "%s: %q appears twice", path, s)
			}
			out = append(out, T(s))
		})
		if n.Kind == yaml.SequenceNode && len(out) == 0 {
			r.add(n, "remove the key", "%s is an empty list", path)
		}
		*into = out
	}
}

func checkAbsolute(s string) error {
	if !filepath.IsAbs(s) {
		return errs.New(errs.Invalid, "%q is not an absolute path", s)
	}
	return nil
}

// maxDomain leaves room for the longest PORT-NAME before it in a host name.
const maxDomain = 200

var domainPattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?([.][a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`)

func checkDomain(s string) error {
	if len(s) > maxDomain || !domainPattern.MatchString(s) {
		return errs.New(errs.Invalid, "%q is no domain in small letters", s).WithHint("such as billet.localhost")
	}
	return nil
}

func checkName(noun string) func(string) error {
	return func(s string) error { return model.CheckName(noun, s) }
}

func checkDriver(s string) error {
	if s != string(model.DriverGVisor) {
		return errs.New(errs.Invalid, "there is no driver %q", s).WithHint("known: %s", model.DriverGVisor)
	}
	return nil
}

func checkClass(s string) error {
	switch model.Class(s) {
	case model.ClassHuman, model.ClassAgent, model.ClassCI:
		return nil
	}
	return errs.New(errs.Invalid, "there is no class %q", s).WithHint("known: %s, %s, %s", model.ClassHuman, model.ClassAgent, model.ClassCI)
}

// invalid records the error of a value's own rule, with its hint.
func (r *reader) invalid(path string, n *yaml.Node, err error) {
	r.add(n, errs.HintOf(err), "%s: %v", path, err)
}

// err is all mistakes as one error. One mistake reads as a sentence, several
// as a list.
func (r *reader) err(name string) error {
	slices.SortStableFunc(r.problems, func(a, b problem) int { return a.line - b.line })
	if len(r.problems) == 1 {
		p := r.problems[0]
		e := errs.New(errs.Invalid, "%s:%d: %s", name, p.line, p.text)
		if p.hint != "" {
			e = e.WithHint("%s", p.hint)
		}
		return e
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s has %d mistakes", name, len(r.problems))
	for i, p := range r.problems {
		if i == maxProblems {
			fmt.Fprintf(&b, "\n  … and %d more", len(r.problems)-i)
			break
		}
		fmt.Fprintf(&b, "\n  line %d: %s", p.line, p.text)
		if p.hint != "" {
			fmt.Fprintf(&b, " (%s)", p.hint)
		}
	}
	return errs.New(errs.Invalid, "%s", b.String()).WithHint("correct every line named above")
}
