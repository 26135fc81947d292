// Package layers holds the tests of the house: which package may import which,
// and who may touch a partition's state. The tables are the documentation.
package layers

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/strandline-io/strandline"

// arrows lists, for each package, the packages of ours that its product code may
// import. A * is everything: those packages are the roof, and nobody imports
// them. An entry that ends in /... stands for all packages below it.
var arrows = map[string]string{
	// Ground: pure.
	"tiers":       "",
	"tiers/batch": "tiers",
	"remoteindex": "tiers",
	"tiers/plan":  "tiers remoteindex",

	// First floor: effects, each behind one seam.
	"tiers/fsys":              "",
	"tiers/fsys/mem":          "tiers/fsys",
	"tiers/local":             "tiers tiers/batch tiers/fsys",
	"tiers/remote":            "tiers tiers/batch",
	"tiers/remote/s3wire":     "tiers tiers/remote",
	"tiers/remote/s3":         "tiers tiers/remote tiers/remote/s3wire",
	"tiers/remote/minio":      "tiers tiers/remote tiers/remote/s3wire",
	"tiers/remote/dir":        "tiers tiers/remote tiers/fsys",
	"tiers/remote/memory":     "tiers tiers/remote",
	"tiers/remote/spool":      "tiers tiers/remote tiers/fsys",
	"tiers/remote/buckettest": "tiers tiers/remote",
	"tiers/partition":         "tiers tiers/batch tiers/plan tiers/fsys tiers/local tiers/remote remoteindex",

	// Gateway: partition is the only door to a log.
	"gateway/control":             "tiers tiers/remote tiers/partition",
	"gateway/control/model":       "tiers tiers/partition gateway/control",
	"gateway/control/sqlite":      "tiers tiers/fsys tiers/partition gateway/control",
	"gateway/control/controltest": "tiers tiers/partition gateway/control",
	"gateway/rebuild":             "tiers tiers/plan tiers/remote remoteindex gateway/control",
	"gateway/broker":              "tiers tiers/fsys tiers/local tiers/remote tiers/partition gateway/control",
	"gateway/groups":              "tiers gateway/broker gateway/control",
	"gateway/kafka":               "tiers tiers/batch tiers/partition gateway/broker gateway/groups gateway/control",
	"gateway/admin":               "tiers tiers/partition tiers/remote gateway/broker gateway/groups gateway/control gateway/admin/client",
	"gateway/admin/client":        "",
	"gateway":                     "tiers tiers/fsys tiers/local tiers/remote tiers/remote/... tiers/partition gateway/...",

	// Roof.
	"cmd/...":     "*",
	"testenv":     "*",
	"testenv/...": "*",
}

// pure packages import none of the impure ones, and no clock is read in them
// (golangci-lint's forbidigo sees to that).
var (
	pure   = strings.Fields("tiers tiers/batch tiers/plan remoteindex")
	impure = strings.Fields("os net net/http io/fs path path/filepath math/rand math/rand/v2 log log/slog sync sync/atomic context")
)

type pkg struct {
	ImportPath string
	Imports    []string
}

func listPackages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", "./...")
	cmd.Dir = "../.."
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var ps []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		var p pkg
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		ps = append(ps, p)
	}
	return ps
}

// match reports whether name is pattern or, for a pattern that ends in /...,
// below it.
func match(pattern, name string) bool {
	if below, ok := strings.CutSuffix(pattern, "/..."); ok {
		return strings.HasPrefix(name, below+"/")
	}
	return pattern == name
}

func allowed(name string) (list string, ok bool) {
	if list, ok = arrows[name]; ok {
		return list, true
	}
	for pattern, list := range arrows {
		if strings.HasSuffix(pattern, "/...") && match(pattern, name) {
			return list, true
		}
	}
	return "", false
}

func TestArrows(t *testing.T) {
	packages := listPackages(t)
	if len(packages) < 10 {
		t.Fatalf("only %d packages were listed", len(packages))
	}
	for _, p := range packages {
		name := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		list, ok := allowed(name)
		if !ok {
			t.Errorf("%s is not in arrows: say what it may import", name)
			continue
		}
		for _, v := range violations(name, list, p.Imports) {
			t.Error(v)
		}
	}
}

func violations(name, list string, imports []string) []string {
	var out []string
	for _, imp := range imports {
		if slices.Contains(pure, name) && slices.Contains(impure, imp) {
			out = append(out, name+" is pure and must not import "+imp)
		}
		dep, ours := strings.CutPrefix(imp, module+"/")
		if !ours || list == "*" {
			continue
		}
		if !slices.ContainsFunc(strings.Fields(list), func(pattern string) bool { return match(pattern, dep) }) {
			out = append(out, name+" must not import "+dep)
		}
	}
	return out
}

// TestArrowsCanFail shows that the rules see what they are there for.
func TestArrowsCanFail(t *testing.T) {
	for _, c := range []struct{ name, imp string }{
		{"tiers", "os"},
		{"tiers/plan", "sync"},
		{"tiers/plan", module + "/tiers/local"},
		{"gateway/kafka", module + "/tiers/local"},
		{"tiers/partition", module + "/gateway/control"},
	} {
		list, _ := allowed(c.name)
		if len(violations(c.name, list, []string{c.imp})) == 0 {
			t.Errorf("%s may import %s", c.name, c.imp)
		}
	}
}
