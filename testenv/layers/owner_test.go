package layers

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// startGoroutines are the files of tiers/partition that may: everything else is
// a step of the loop or a job's own work.
var startGoroutines = []string{"loop.go", "owner.go", "scheduler.go"}

// TestOwner checks that the signatures in tiers/partition tell the truth about
// who runs them: on* gets the *state, run* never sees one, no struct keeps one,
// and only the files above start goroutines.
func TestOwner(t *testing.T) {
	files, err := filepath.Glob("../../tiers/partition/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal("no files", err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, v := range ownerViolations(t, file, nil) {
			t.Error(v)
		}
	}
}

// TestOwnerCanFail shows that each rule sees its breach.
func TestOwnerCanFail(t *testing.T) {
	for _, src := range []string{
		"package p\nfunc onAppend(x int) {}",
		"package p\nfunc (j job) run(s *state) {}",
		"package p\nfunc (s *state) runAll() {}",
		"package p\ntype t struct{ s *state }",
		"package p\nfunc f() { go f() }",
	} {
		if len(ownerViolations(t, "x.go", src)) == 0 {
			t.Errorf("nothing was found in %q", src)
		}
	}
}

func ownerViolations(t *testing.T, file string, src any) []string {
	t.Helper()
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, src, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	add := func(p token.Pos, what string) { out = append(out, fset.Position(p).String()+": "+what) }
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			sees := holdsState(n.Recv) || holdsState(n.Type.Params)
			if verb(n.Name.Name, "on") && !sees {
				add(n.Pos(), n.Name.Name+" must get the *state")
			}
			if verb(n.Name.Name, "run") && sees {
				add(n.Pos(), n.Name.Name+" is a worker and must not see a *state")
			}
		case *ast.StructType:
			if holdsState(n.Fields) {
				add(n.Pos(), "a struct must not keep a *state")
			}
		case *ast.GoStmt:
			if !slices.Contains(startGoroutines, filepath.Base(file)) {
				add(n.Pos(), "goroutines start in "+strings.Join(startGoroutines, ", "))
			}
		}
		return true
	})
	return out
}

// verb reports whether name is the verb prefix, alone or before a capital.
func verb(name, prefix string) bool {
	rest, ok := strings.CutPrefix(name, prefix)
	return ok && (rest == "" || rest[0] < 'a')
}

func holdsState(l *ast.FieldList) bool {
	if l == nil {
		return false
	}
	for _, f := range l.List {
		if s, ok := f.Type.(*ast.StarExpr); ok {
			if id, ok := s.X.(*ast.Ident); ok && id.Name == "state" {
				return true
			}
		}
	}
	return false
}
