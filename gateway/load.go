package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/strandline-io/strandline/gateway/broker"
)

// maxConfigFile bounds a configuration file, in bytes.
const maxConfigFile = 1 << 20

// Sources are the places that a configuration comes from. Flags win over the
// environment, that over the file, that over the defaults.
type Sources struct {
	File    string            // path of a YAML file; empty: none
	Environ []string          // as os.Environ gives it
	Flags   map[string]string // flags that were given, by name (Flags)
}

// Loaded is a configuration with where each value comes from.
type Loaded struct {
	Config
	Warnings []string

	origins  map[string]string // by key; absent: default
	file     string
	fileMode fs.FileMode
}

// Flag is a key of the configuration as a command line flag.
type Flag struct {
	Name, Default, Usage string
}

// Flags lists the flags of all keys.
func Flags() []Flag {
	c := DefaultConfig()
	all := c.settings()
	out := make([]Flag, len(all))
	for i, s := range all {
		out[i] = Flag{Name: s.flagName(), Default: s.get(), Usage: s.doc + " (" + s.kind + ")"}
	}
	return out
}

// Load reads a configuration. It reports everything that is wrong, not only the
// first. Validate looks at what the values mean together.
func Load(src Sources) (*Loaded, error) {
	l := &Loaded{Config: DefaultConfig(), origins: map[string]string{}, file: src.File}
	keys := map[string]setting{}
	for _, s := range l.settings() {
		keys[s.key] = s
	}
	var errs []error
	if src.File != "" {
		errs = append(errs, l.loadFile(src.File, keys)...)
	}
	errs = append(errs, l.loadEnviron(src.Environ, keys)...)
	errs = append(errs, l.loadFlags(src.Flags, keys)...)
	return l, errors.Join(errs...)
}

func (l *Loaded) assign(s setting, value, origin string) error {
	if err := s.set(value); err != nil {
		if s.secret {
			err = errors.New("not a value that can be used") // never print it
		}
		return fmt.Errorf("%s (%s): %w", s.key, origin, err)
	}
	l.origins[s.key] = origin
	return nil
}

func (l *Loaded) loadEnviron(environ []string, keys map[string]setting) (errs []error) {
	names := map[string]setting{}
	for _, s := range keys {
		names[s.envName()] = s
	}
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		if !strings.HasPrefix(name, envPrefix) || strings.HasPrefix(name, envPrefix+"TEST_") || name == envPrefix+"CONFIG" {
			continue
		}
		s, ok := names[name]
		if !ok {
			// Not an error: Kubernetes puts variables with the name of every
			// service into the environment (STRANDLINE_PORT, ...).
			l.Warnings = append(l.Warnings, unknown("environment variable", name, slices.Sorted(maps.Keys(names))))
			continue
		}
		if err := l.assign(s, value, "env "+name); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

func (l *Loaded) loadFlags(flags map[string]string, keys map[string]setting) (errs []error) {
	names := map[string]setting{}
	for _, s := range keys {
		names[s.flagName()] = s
	}
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		s, ok := names[name]
		if !ok {
			errs = append(errs, errors.New(unknown("flag", name, slices.Sorted(maps.Keys(names)))))
			continue
		}
		if err := l.assign(s, flags[name], "flag --"+name); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

func unknown(what, name string, known []string) string {
	if near := broker.Closest(name, known); near != "" {
		return fmt.Sprintf("unknown %s %q: did you mean %q?", what, name, near)
	}
	return fmt.Sprintf("unknown %s %q", what, name)
}

func (l *Loaded) loadFile(path string, keys map[string]setting) []error {
	raw, mode, err := readConfigFile(path)
	if err != nil {
		return []error{fmt.Errorf("configuration file: %w", err)}
	}
	l.fileMode = mode
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	var doc yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil // an empty file
	case err != nil:
		return []error{fmt.Errorf("%s: %w", path, err)}
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return []error{fmt.Errorf("%s: one YAML document is expected, there are more", path)}
	}
	y := yamlFile{path: path, keys: keys, loaded: l}
	y.section("", doc.Content[0])
	return y.errs
}

func readConfigFile(path string) (raw []byte, mode fs.FileMode, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	st, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	raw, err = io.ReadAll(io.LimitReader(f, maxConfigFile+1))
	if err == nil && len(raw) > maxConfigFile {
		err = fmt.Errorf("%s is larger than %s", path, FormatBytes(maxConfigFile))
	}
	return raw, st.Mode(), err
}

// yamlFile walks a file and gives each value to its key.
type yamlFile struct {
	path   string
	keys   map[string]setting
	loaded *Loaded
	errs   []error
}

func (y *yamlFile) fail(n *yaml.Node, format string, args ...any) {
	y.errs = append(y.errs, fmt.Errorf("%s:%d: %s", y.path, n.Line, fmt.Sprintf(format, args...)))
}

func (y *yamlFile) section(prefix string, n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return // a section whose lines are all commented out
	}
	if n.Kind != yaml.MappingNode {
		what := "the file"
		if prefix != "" {
			what = "the section " + strings.TrimSuffix(prefix, ".")
		}
		y.fail(n, "%s holds keys, not a value or a list", what)
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		if seen[name.Value] {
			y.fail(name, "%s%s is there twice", prefix, name.Value)
			continue
		}
		seen[name.Value] = true
		y.entry(prefix+name.Value, name, value)
	}
}

func (y *yamlFile) entry(key string, name, value *yaml.Node) {
	if s, ok := y.keys[key]; ok {
		y.scalar(s, value)
		return
	}
	for k := range y.keys {
		if strings.HasPrefix(k, key+".") {
			y.section(key+".", value)
			return
		}
	}
	y.fail(name, "%s", unknown("key", key, slices.Sorted(maps.Keys(y.keys))))
}

func (y *yamlFile) scalar(s setting, n *yaml.Node) {
	switch {
	case n.Kind != yaml.ScalarNode:
		y.fail(n, "%s takes one value (%s)", s.key, s.kind)
	case n.Tag == "!!null":
		y.fail(n, "%s has no value: give one (%s) or remove the line", s.key, s.kind)
	default:
		if err := y.loaded.assign(s, n.Value, fmt.Sprintf("file %s:%d", y.path, n.Line)); err != nil {
			y.errs = append(y.errs, err)
		}
	}
}

// Entry is one key as config print and /v1/config show it. Secrets are not in
// it.
type Entry struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Source string `json:"source"`
}

// Entries lists every key with its value and where that comes from.
func (l *Loaded) Entries() []Entry {
	all := l.settings()
	out := make([]Entry, len(all))
	for i, s := range all {
		e := Entry{Key: s.key, Value: s.shown(), Source: "default"}
		if o, ok := l.origins[s.key]; ok {
			e.Source = o
		}
		out[i] = e
	}
	return out
}
