package mutants

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
)

// defaultLimit is how long the tests of a mutant may run, unless it says.
const defaultLimit = 30 * time.Second

// Mutant is one broken rule, and the tests that must notice.
type Mutant struct {
	Name    string   // of the file, without its suffix
	Rules   []string // labels of docs/SPECIFICATION.md, vectors, reports
	Package string   // of the tests, as go test takes it: ./tiers/plan
	Run     string   // regular expression of the tests, as go test -run takes it
	Breaks  string   // what is wrong with the mutant, one sentence
	Limit   time.Duration
	// HangKills says that tests which do not end have noticed: the rule is what
	// keeps a loop from going on for ever.
	HangKills bool
	Hunks     []Hunk
}

// Hunk replaces lines of a file. Lines are compared without the blanks around
// them, so code may be indented anew.
type Hunk struct {
	File     string // relative to the root of the module
	Old, New []string
}

// Parse reads a mutant. Its head has lines "key: value"; an empty line ends it.
// Then come hunks: a line "@ path/of/file.go", and below it the lines as a diff
// has them, without numbers: " " before those that stay, "-" before those that
// go, "+" before those that come. Empty lines and those that begin with # do not
// count.
func Parse(name, text string) (Mutant, error) {
	m := Mutant{Name: name, Limit: defaultLimit}
	head, body, _ := strings.Cut(text, "\n\n")
	if err := m.parseHead(head); err != nil {
		return m, fmt.Errorf("%s: %w", name, err)
	}
	if err := m.parseHunks(body); err != nil {
		return m, fmt.Errorf("%s: %w", name, err)
	}
	if err := m.valid(); err != nil {
		return m, fmt.Errorf("%s: %w", name, err)
	}
	return m, nil
}

func (m *Mutant) parseHead(head string) error {
	seen := map[string]bool{}
	for line := range strings.Lines(head) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		key, value, ok := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		if !ok || value == "" {
			return fmt.Errorf("%q is no key and value", line)
		}
		if seen[key] {
			return fmt.Errorf("%s is there twice", key)
		}
		seen[key] = true
		if err := m.set(key, value); err != nil {
			return err
		}
	}
	return nil
}

func (m *Mutant) set(key, value string) (err error) {
	switch key {
	case "rules":
		for r := range strings.SplitSeq(value, ",") {
			m.Rules = append(m.Rules, strings.TrimSpace(r))
		}
	case "package":
		m.Package = value
	case "run":
		m.Run = value
		_, err = regexp.Compile(value)
	case "breaks":
		m.Breaks = value
	case "limit":
		m.Limit, err = time.ParseDuration(value)
	case "hang":
		m.HangKills = value == "kills"
		if !m.HangKills {
			err = fmt.Errorf("hang is %q: say kills or nothing", value)
		}
	default:
		err = fmt.Errorf("unknown key %q", key)
	}
	return err
}

func (m *Mutant) parseHunks(body string) error {
	for line := range strings.Lines(body) {
		line = strings.TrimRight(line, "\r\n")
		if strings.TrimSpace(line) == "" || line[0] == '#' {
			continue
		}
		if file, ok := strings.CutPrefix(line, "@ "); ok {
			m.Hunks = append(m.Hunks, Hunk{File: strings.TrimSpace(file)})
			continue
		}
		if len(m.Hunks) == 0 {
			return fmt.Errorf("%q comes before the first line \"@ file\"", line)
		}
		h := &m.Hunks[len(m.Hunks)-1]
		switch line[0] {
		case ' ', '\t':
			h.Old, h.New = append(h.Old, line), append(h.New, line)
		case '-':
			h.Old = append(h.Old, line[1:])
		case '+':
			h.New = append(h.New, line[1:])
		default:
			return fmt.Errorf("%q begins with none of blank, -, +, @ and #", line)
		}
	}
	return nil
}

// valid returns nil if everything is there that a run needs.
func (m *Mutant) valid() error {
	switch {
	case len(m.Rules) == 0 || slices.Contains(m.Rules, ""):
		return errors.New("rules: which one does it break?")
	case !strings.HasPrefix(m.Package, "./"):
		return fmt.Errorf("package: %q does not begin with ./", m.Package)
	case m.Run == "":
		return errors.New("run: which tests must fail?")
	case m.Breaks == "":
		return errors.New("breaks: what is wrong with it?")
	case m.Limit <= 0:
		return fmt.Errorf("limit: %s is no time", m.Limit)
	case len(m.Hunks) == 0:
		return errors.New("it has no hunk")
	}
	for i, h := range m.Hunks {
		switch {
		case path.Clean(h.File) != h.File || path.IsAbs(h.File) || strings.HasPrefix(h.File, "..") || path.Ext(h.File) != ".go":
			return fmt.Errorf("hunk %d: %q is no Go file below the root of the module", i+1, h.File)
		case strings.HasSuffix(h.File, "_test.go"):
			return fmt.Errorf("hunk %d: %s is a test: a mutant breaks the product", i+1, h.File)
		case len(h.Old) == 0:
			return fmt.Errorf("hunk %d of %s: it names no line of the file", i+1, h.File)
		case slices.Equal(trimmed(h.Old), trimmed(h.New)):
			return fmt.Errorf("hunk %d of %s: it changes nothing", i+1, h.File)
		}
	}
	return nil
}

// Apply returns the files that the mutant changes, by path. read returns a file
// of the module as it is. An error says which hunk does not fit any more.
func (m *Mutant) Apply(read func(file string) (string, error)) (map[string]string, error) {
	out := map[string]string{}
	for i, h := range m.Hunks {
		text, ok := out[h.File]
		if !ok {
			var err error
			if text, err = read(h.File); err != nil {
				return nil, fmt.Errorf("%s: hunk %d: %w", m.Name, i+1, err)
			}
		}
		text, err := h.apply(text)
		if err != nil {
			return nil, fmt.Errorf("%s: hunk %d of %s: %w", m.Name, i+1, h.File, err)
		}
		out[h.File] = text
	}
	return out, nil
}

func (h *Hunk) apply(text string) (string, error) {
	lines := strings.Split(text, "\n")
	have, old := trimmed(lines), trimmed(h.Old)
	at, n := -1, 0
	for i := 0; i+len(old) <= len(have); i++ {
		if slices.Equal(have[i:i+len(old)], old) {
			at, n = i, n+1
		}
	}
	switch {
	case n == 0:
		return "", fmt.Errorf("the text is gone; look where the rule went and write the hunk anew:\n\t%s", strings.Join(old, "\n\t"))
	case n > 1:
		return "", fmt.Errorf("the text is there %d times; add lines around it:\n\t%s", n, strings.Join(old, "\n\t"))
	}
	return strings.Join(slices.Concat(lines[:at], h.New, lines[at+len(old):]), "\n"), nil
}

func trimmed(lines []string) []string {
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = strings.TrimSpace(l)
	}
	return out
}

// files returns the files that m changes, in order.
func files(changed map[string]string) []string { return slices.Sorted(maps.Keys(changed)) }
