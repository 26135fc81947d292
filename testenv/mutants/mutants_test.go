package mutants

import (
	"cmp"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	root   = "../.."
	suffix = ".mutant"
	// sample is the mutant that every `go test ./...` runs: of a small package.
	sample = "B5-lineage-may-repeat"
)

func load(t *testing.T) []Mutant {
	t.Helper()
	names, err := filepath.Glob("*" + suffix)
	if err != nil || len(names) == 0 {
		t.Fatalf("no mutants: %v", err)
	}
	var out []Mutant
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		m, err := Parse(strings.TrimSuffix(name, suffix), string(text))
		if err != nil {
			t.Error(err)
			continue
		}
		out = append(out, m)
	}
	return out
}

// TestMutantsFit shows that each hunk still has its text, exactly once: code that
// moved on must not leave a mutant that breaks nothing. No two break the same for
// the same tests.
func TestMutantsFit(t *testing.T) {
	r := runner(t)
	same := map[string]string{}
	for _, m := range load(t) {
		changed, err := m.Apply(r.read)
		if err != nil {
			t.Error(err)
			continue
		}
		key := fmt.Sprint(m.Package, m.Run, changed)
		if other, twice := same[key]; twice {
			t.Errorf("%s and %s are the same", other, m.Name)
		}
		same[key] = m.Name
		if !slices.ContainsFunc(m.Rules, func(rule string) bool { return strings.HasPrefix(m.Name, strings.ReplaceAll(rule, " ", "-")+"-") }) {
			t.Errorf("%s: the name begins with none of its rules %v", m.Name, m.Rules)
		}
	}
}

// TestEveryRuleHasAMutant: a rule of the tables in docs/SPECIFICATION.md that
// nothing breaks may have a test that cannot fail.
func TestEveryRuleHasAMutant(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/SPECIFICATION.md"))
	if err != nil {
		t.Fatal(err)
	}
	broken := map[string]bool{}
	for _, m := range load(t) {
		for _, rule := range m.Rules {
			broken[rule] = true
		}
	}
	rules := labels(string(text))
	if len(rules) < 30 {
		t.Fatalf("only these rules were found: %v", rules)
	}
	for _, rule := range rules {
		if !broken[rule] {
			t.Errorf("no mutant breaks %s: write one, and see its test fail", rule)
		}
	}
}

// labels are the rules that the tables of a page have in their first column.
func labels(page string) (out []string) {
	for line := range strings.Lines(page) {
		first, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " |")
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		for label := range strings.SplitSeq(first, ", ") {
			if ok, err := path.Match("[A-Z][0-9]*", label); err == nil && ok {
				out = append(out, label)
			}
		}
	}
	return out
}

func TestLabels(t *testing.T) {
	got := labels("# R1\n| label | rule |\n|---|---|\n| B1 | one | `a.go` |\n| R9, R13 | two |\n| x | R2 |\ntext | R3 |\n")
	if !slices.Equal(got, []string{"B1", "R9", "R13"}) {
		t.Error(got)
	}
}

// TestMutantsDie runs what STRANDLINE_MUTANTS names: "all", "2/3" for the second
// third of them, or patterns of names with blanks between them ("R14-* B?-*").
// Without it one runs, to show that the runner works.
func TestMutantsDie(t *testing.T) {
	chosen, err := choose(load(t), cmp.Or(os.Getenv("STRANDLINE_MUTANTS"), sample))
	if err != nil {
		t.Fatal("STRANDLINE_MUTANTS: ", err)
	}
	r, turn := runner(t), make(chan struct{}, max(1, runtime.NumCPU()/2))
	for _, m := range chosen {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			turn <- struct{}{}
			defer func() { <-turn }()
			dies(t, r, m)
		})
	}
}

func dies(t *testing.T, r *Runner, m Mutant) {
	t.Helper()
	began := time.Now()
	o, err := r.Run(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	if !o.Killed {
		t.Fatalf("%v: it lives: %s\n%s\ngo test -run '%s' %s does not notice that\n%s", m.Rules, m.Breaks, o.How, m.Run, m.Package, o.Output)
	}
	t.Logf("%.1f s: %s", time.Since(began).Seconds(), o.How)
}

// choose returns the mutants that which names, at least one.
func choose(all []Mutant, which string) ([]Mutant, error) {
	var out []Mutant
	var k, n int
	if c, err := fmt.Sscanf(which, "%d/%d", &k, &n); c == 2 && err == nil {
		if k < 1 || k > n || n > len(all) {
			return nil, fmt.Errorf("%s is no part of %d mutants", which, len(all))
		}
		for i := k - 1; i < len(all); i += n {
			out = append(out, all[i])
		}
		return out, nil
	}
	patterns := strings.Fields(which)
	for _, m := range all {
		for _, p := range patterns {
			ok, err := path.Match(p, m.Name)
			if err != nil {
				return nil, fmt.Errorf("%q: %w", p, err)
			}
			if ok || p == "all" {
				out = append(out, m)
				break
			}
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no mutant is called %q", which)
	}
	return out, nil
}

func TestChoose(t *testing.T) {
	all := []Mutant{{Name: "B1-a"}, {Name: "B2-b"}, {Name: "R1-c"}, {Name: "R14-d"}, {Name: "R15-e"}}
	for which, want := range map[string]string{
		"all": "B1-a B2-b R1-c R14-d R15-e", "B?-* R14-d": "B1-a B2-b R14-d", "R1*": "R1-c R14-d R15-e", "B1-a B*": "B1-a B2-b",
		"1/2": "B1-a R1-c R15-e", "2/2": "B2-b R14-d", "5/5": "R15-e",
		"T*": "", "": "", "[": "", "0/2": "", "3/2": "", "1/6": "", "1/0": "", "-1/2": "",
	} {
		got, err := choose(all, which)
		var names []string
		for _, m := range got {
			names = append(names, m.Name)
		}
		if strings.Join(names, " ") != want || (err == nil) != (want != "") {
			t.Errorf("%q: %v, %v, want %q", which, names, err, want)
		}
	}
}

func runner(t *testing.T) *Runner {
	t.Helper()
	dir, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	return &Runner{Root: dir, Temp: t.TempDir()}
}

// good is a mutant whose parts the tests of Parse spoil one by one.
const good = `# why this one
rules: B5, report 000
package: ./tiers
run: ^TestB5_Valid$
breaks: entries may repeat.
limit: 5s
hang: kills

# the first hunk
@ tiers/lineage.go
     a
-b
+c
@ tiers/offsets.go
-d
`

func TestParse(t *testing.T) {
	m, err := Parse("B5-x", good)
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("%+v", m)
	want := "{Name:B5-x Rules:[B5 report 000] Package:./tiers Run:^TestB5_Valid$ Breaks:entries may repeat. Limit:5s HangKills:true " +
		"Hunks:[{File:tiers/lineage.go Old:[     a b] New:[     a c]} {File:tiers/offsets.go Old:[d] New:[]}]}"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{"rules: B5, report 000\n", "", "which one does it break"},
		{"B5, report", "B5,, report", "which one does it break"},
		{"package: ./tiers\n", "", "does not begin with ./"},
		{"package: ./tiers", "package: tiers", "does not begin with ./"},
		{"run: ^TestB5_Valid$\n", "", "which tests must fail"},
		{"^TestB5_Valid$", "(", "missing closing"},
		{"breaks: entries may repeat.\n", "", "what is wrong with it"},
		{"limit: 5s", "limit: -5s", "is no time"},
		{"limit: 5s", "limit: five", "invalid duration"},
		{"limit: 5s", "rules: B6", "rules is there twice"},
		{"limit: 5s", "limits: 5s", `unknown key "limits"`},
		{"limit: 5s", "limit 5s", "is no key and value"},
		{"limit: 5s", "limit:", "is no key and value"},
		{"hang: kills", "hang: yes", "say kills or nothing"},
		{"@ tiers/lineage.go", "@ ../lineage.go", "no Go file below the root"},
		{"@ tiers/lineage.go", "@ /tiers/lineage.go", "no Go file below the root"},
		{"@ tiers/lineage.go", "@ tiers/lineage.txt", "no Go file below the root"},
		{"@ tiers/lineage.go", "@ tiers/lineage_test.go", "is a test"},
		{"@ tiers/lineage.go", "tiers/lineage.go", "comes before the first line"},
		{"-b\n+c\n", "", "it changes nothing"},
		{"-b\n+c\n", "-b\n+ b\n", "it changes nothing"},
		{"-d\n", "", "it names no line"},
		{"-d\n", "d\n", "begins with none of"},
		{"-d\n", "+d\n", "it names no line"},
		{good[strings.Index(good, "\n\n"):], "\n", "it has no hunk"},
	} {
		text := strings.Replace(good, c.old, c.new, 1)
		if text == good {
			t.Fatalf("%q is not in the good mutant", c.old)
		}
		_, err := Parse("B5-x", text)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "B5-x: ") {
			t.Errorf("%q for %q: error %v, want one with %q", c.new, c.old, err, c.want)
		}
	}
}

func TestApply(t *testing.T) {
	files := map[string]string{"a.go": "one\n\ttwo\n\t\tthree\ntwo\nfour\n"}
	read := func(name string) (string, error) {
		text, ok := files[name]
		if !ok {
			return "", os.ErrNotExist
		}
		return text, nil
	}
	for _, c := range []struct {
		what  string
		hunks []Hunk
		want  string // the file, or the error
	}{
		{"one line", []Hunk{{"a.go", []string{"three"}, []string{"3", "drei"}}}, "one\n\ttwo\n3\ndrei\ntwo\nfour\n"},
		{"lines around", []Hunk{{"a.go", []string{"two", " four"}, []string{"2", "four"}}}, "one\n\ttwo\n\t\tthree\n2\nfour\n"},
		{"removed", []Hunk{{"a.go", []string{"two", "three"}, nil}}, "one\ntwo\nfour\n"},
		{"one after the other", []Hunk{{"a.go", []string{"three"}, []string{"five"}}, {"a.go", []string{"five"}, []string{"six"}}}, "one\n\ttwo\nsix\ntwo\nfour\n"},
		{"twice", []Hunk{{"a.go", []string{"two"}, []string{"2"}}}, "x: hunk 1 of a.go: the text is there 2 times"},
		{"gone", []Hunk{{"a.go", []string{"three"}, []string{"five"}}, {"a.go", []string{"three"}, nil}}, "x: hunk 2 of a.go: the text is gone"},
		{"part of a line", []Hunk{{"a.go", []string{"thre"}, nil}}, "x: hunk 1 of a.go: the text is gone"},
		{"longer than the file", []Hunk{{"a.go", []string{"four", "", ""}, nil}}, "x: hunk 1 of a.go: the text is gone"},
		{"no file", []Hunk{{"b.go", []string{"two"}, nil}}, "x: hunk 1: file does not exist"},
	} {
		got, err := (&Mutant{Name: "x", Hunks: c.hunks}).Apply(read)
		switch {
		case err != nil && !strings.HasPrefix(err.Error(), c.want), err == nil && got["a.go"] != c.want:
			t.Errorf("%s: got %q, %v, want %q", c.what, got["a.go"], err, c.want)
		}
	}
}
