package gateway

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzLoadFile feeds files to Load: it never panics, and a file that it takes
// gives values that each key accepts again.
func FuzzLoadFile(f *testing.F) {
	for _, seed := range []string{
		"", "node:\n  id: 7\n", "kafka: {listen: '127.0.0.1:1'}\n", "a: &x [*x]\n", "? [a]\n: b\n", "node: &n {id: 1}\ntopics: *n\n",
		"topics:\n  defaults:\n    ack: os\n", "!!binary aGk=: 1\n", "---\n...\n---\n", "<<: {data_dir: /x}\n", "data_dir: !!null x\n", "\x00", "cache:\n  bytes: 9MiB\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "f.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := Load(Sources{File: path})
		if err != nil {
			return
		}
		for _, s := range l.settings() {
			if err := s.set(s.get()); err != nil && !strings.HasPrefix(s.key, "topics.defaults.") {
				t.Errorf("%s: %v", s.key, err)
			}
		}
		_ = l.Validate() // must not panic
	})
}

// FuzzParseBytes: what is read is written in a form that reads the same.
func FuzzParseBytes(f *testing.F) {
	for _, seed := range []string{"0", "1KiB", "9223372036854775807", "8388608TiB", " 1", "1 MiB", "-1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseBytes(s)
		if err != nil {
			return
		}
		if again, err := ParseBytes(FormatBytes(n)); n < 0 || err != nil || again != n {
			t.Errorf("%q is %d, then %d, %v", s, n, again, err)
		}
	})
}
