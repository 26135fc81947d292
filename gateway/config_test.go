package gateway

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// writeConfig puts a file into a folder of the test's own.
func writeConfig(t *testing.T, mode os.FileMode, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "strandline.yaml")
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil { // whatever the umask
		t.Fatal(err)
	}
	return path
}

func load(t *testing.T, src Sources) *Loaded {
	t.Helper()
	l, err := Load(src)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func entry(t *testing.T, l *Loaded, key string) Entry {
	t.Helper()
	for _, e := range l.Entries() {
		if e.Key == key {
			return e
		}
	}
	t.Fatalf("no key %s", key)
	return Entry{}
}

func TestFlagsWinOverEnvironmentOverFileOverDefault(t *testing.T) {
	file := writeConfig(t, 0o600, "node:\n  id: 7\n  rack: from-file\nkafka:\n  listen: 127.0.0.1:7000\ntopics:\n  defaults:\n    ack: interval\n")
	l := load(t, Sources{
		File:    file,
		Environ: []string{"STRANDLINE_NODE_RACK=from-env", "STRANDLINE_KAFKA_LISTEN=127.0.0.1:7001", "PATH=/bin"},
		Flags:   map[string]string{"kafka-listen": "127.0.0.1:7002"},
	})
	for _, want := range []Entry{
		{"node.id", "7", "file " + file + ":2"},
		{"node.rack", "from-env", "env STRANDLINE_NODE_RACK"},
		{"kafka.listen", "127.0.0.1:7002", "flag --kafka-listen"},
		{"admin.listen", "127.0.0.1:8092", "default"},
		{"topics.defaults.ack", "interval", "file " + file + ":8"},
		{"topics.defaults.segment_bytes", "1073741824", "default"},
	} {
		if got := entry(t, l, want.Key); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	if l.NodeID != 7 || l.Kafka.Listen != "127.0.0.1:7002" || l.Topics.Defaults["strandline.ack"] != "interval" {
		t.Errorf("the values did not arrive: %+v", l.Config)
	}
}

func TestEveryKeyIsTakenFromEveryPlace(t *testing.T) {
	c := DefaultConfig()
	for _, s := range c.settings() {
		value := s.get()
		if value == "" {
			value = "x"
		}
		lines := ""
		parts := strings.Split(s.key, ".")
		for i, p := range parts {
			lines += strings.Repeat("  ", i) + p + ":"
			if i == len(parts)-1 {
				lines += " " + value
			}
			lines += "\n"
		}
		for place, src := range map[string]Sources{
			"file": {File: writeConfig(t, 0o600, lines)},
			"env":  {Environ: []string{s.envName() + "=" + value}},
			"flag": {Flags: map[string]string{s.flagName(): value}},
		} {
			if got := entry(t, load(t, src), s.key); !strings.HasPrefix(got.Source, place+" ") {
				t.Errorf("%s from %s: source %q", s.key, place, got.Source)
			}
		}
	}
	if n := len(Flags()); n != len(c.settings()) {
		t.Errorf("%d flags for %d keys", n, len(c.settings()))
	}
}

func TestFileIsStrict(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"unknown key":         {"kafka:\n  lisen: 127.0.0.1:1\n", `:2: unknown key "kafka.lisen": did you mean "kafka.listen"?`},
		"unknown section":     {"kafkas:\n  listen: 127.0.0.1:1\n", `:1: unknown key "kafkas"`},
		"unknown default":     {"topics:\n  defaults:\n    segment_byte: 1\n", `did you mean "topics.defaults.segment_bytes"?`},
		"twice":               {"data_dir: /a\ndata_dir: /b\n", "data_dir is there twice"},
		"a list":              {"data_dir: [a]\n", "data_dir takes one value"},
		"no value":            {"data_dir:\n", "data_dir has no value"},
		"value for a section": {"kafka: 9092\n", "the section kafka holds keys"},
		"not a number":        {"node:\n  id: one\n", `:2): "one" is not a whole number from 0 to`},
		"not a boolean":       {"topics:\n  auto_create: yes\n", `"yes" is neither true nor false`},
		"not a duration":      {"drain_timeout: 60\n", `"60" is not a duration`},
		"not bytes":           {"cache:\n  bytes: 1GB\n", "is not a number of bytes"},
		"not a level":         {"log:\n  level: loud\n", "choose one of trace, debug, info, warn, error"},
		"two documents":       {"data_dir: /a\n---\ndata_dir: /b\n", "one YAML document is expected"},
		"not YAML":            {"\t:", "strandline.yaml: yaml:"},
		"top level list":      {"- a\n", "the file holds keys"},
	} {
		_, err := Load(Sources{File: writeConfig(t, 0o600, c.text)})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want ...%s...", name, err, c.want)
		}
	}
}

func TestLoadTellsAllMistakesAtOnce(t *testing.T) {
	_, err := Load(Sources{
		File:    writeConfig(t, 0o600, "a: 1\nb: 2\n"),
		Environ: []string{"STRANDLINE_NODE_ID=x"},
		Flags:   map[string]string{"log-formt": "json"},
	})
	for _, want := range []string{`"a"`, `"b"`, "env STRANDLINE_NODE_ID", `unknown flag "log-formt": did you mean "log-format"?`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want ...%s...", err, want)
		}
	}
}

func TestEmptyAndCommentedFilesAreFine(t *testing.T) {
	for _, text := range []string{"", "# nothing\n", "kafka:\n  # listen: x\n"} {
		load(t, Sources{File: writeConfig(t, 0o600, text)})
	}
	if _, err := Load(Sources{File: "/nowhere/strandline.yaml"}); err == nil || !strings.Contains(err.Error(), "/nowhere/strandline.yaml") {
		t.Errorf("missing file: %v", err)
	}
}

func TestUnknownEnvironmentWarnsOnly(t *testing.T) {
	l := load(t, Sources{Environ: []string{"STRANDLINE_NODE_IDD=1", "STRANDLINE_TEST_S3_ENDPOINT=x", "STRANDLINE_CONFIG=f"}})
	if len(l.Warnings) != 1 || !strings.Contains(l.Warnings[0], `did you mean "STRANDLINE_NODE_ID"?`) {
		t.Errorf("warnings %q", l.Warnings)
	}
}

func TestSecretsAreNeverShown(t *testing.T) {
	const key = "s3cr3t-value"
	l := load(t, Sources{Environ: []string{"STRANDLINE_S3_SECRET_KEY=" + key, "STRANDLINE_S3_ACCESS_KEY=" + key, "STRANDLINE_S3_SESSION_TOKEN=" + key}})
	shown := 0
	for _, e := range l.Entries() {
		if strings.Contains(e.Value, key) {
			t.Errorf("%s shows its secret", e.Key)
		}
		if e.Value == redacted {
			shown++
		}
	}
	if shown != 3 {
		t.Errorf("%d secrets are marked as set, want 3", shown)
	}
	l.Bucket = "http://user:" + key + "@host"
	if e := entry(t, l, "bucket"); strings.Contains(e.Value, key) {
		t.Errorf("the bucket's URL shows its password: %q", e.Value)
	}
	for _, e := range l.kafkaNames() {
		if strings.Contains(e.Value, key) || e.Sensitive && e.Value != "" {
			t.Errorf("%s shows a secret", e.Name)
		}
	}
	if err := l.Validate(); err == nil || strings.Contains(err.Error(), key) {
		t.Errorf("the error shows the password, or there is none: %v", err)
	}
}

func TestParseBytes(t *testing.T) {
	for s, want := range map[string]int64{"0": 0, "1048576": 1 << 20, "1KiB": 1 << 10, "3 MiB": 3 << 20, "2GiB": 2 << 30, "1TiB": 1 << 40} {
		if got, err := ParseBytes(s); err != nil || got != want {
			t.Errorf("%s: got %d, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "-1", "1.5MiB", "MiB", "1mb", "9223372036854775807KiB"} {
		if _, err := ParseBytes(s); err == nil {
			t.Errorf("%q is accepted", s)
		}
	}
	for _, n := range []int64{0, 1, 1000, 1 << 10, 3 << 20, 1<<20 + 1, 1 << 40} {
		if got, err := ParseBytes(FormatBytes(n)); err != nil || got != n {
			t.Errorf("%d: got %d, %v", n, got, err)
		}
	}
}

// valid is a configuration that Validate takes.
func valid(t *testing.T) *Loaded {
	t.Helper()
	return load(t, Sources{Flags: map[string]string{"data-dir": t.TempDir(), "bucket": "dir:" + t.TempDir()}})
}

func TestUnsafeCombinationsAreRefusedWithAReasonAndARemedy(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Loaded)
		want   []string // the reason and the remedy
	}{
		"no data dir":       {func(l *Loaded) { l.DataDir = "" }, []string{"data_dir is not set", "--data-dir"}},
		"relative data dir": {func(l *Loaded) { l.DataDir = "data" }, []string{"is relative", "absolute"}},
		"root as data dir":  {func(l *Loaded) { l.DataDir = "/" }, []string{"root of the file system", "folder of its own"}},
		"bucket is data dir": {
			func(l *Loaded) { l.Bucket = "dir:" + l.DataDir },
			[]string{"same folder", "a folder of its own"},
		},
		"bucket in data dir": {func(l *Loaded) { l.Bucket = "dir:" + l.DataDir + "/bucket" }, []string{"is inside data_dir", "outside"}},
		"data dir in bucket": {
			func(l *Loaded) { l.Bucket, l.DataDir = "dir:"+l.DataDir, l.DataDir+"/data" },
			[]string{"is inside the bucket", "outside"},
		},
		"relative bucket":       {func(l *Loaded) { l.Bucket = "dir:bucket" }, []string{"is relative", "dir:/path"}},
		"unknown bucket":        {func(l *Loaded) { l.Bucket = "gs://b/p" }, []string{"gs://b/p", "use s3://"}},
		"unknown bucket option": {func(l *Loaded) { l.Bucket = "s3://bucket/p?regoin=x" }, []string{"unknown option", "region"}},
		"password in the URL":   {func(l *Loaded) { l.Bucket = "s3://k:s@bucket/p" }, []string{"take the keys out"}},
		"http endpoint": {
			func(l *Loaded) { l.Bucket = "s3://bucket/p?endpoint=http://10.0.0.1:7070" },
			[]string{"plain http on another machine", "use https, or set s3.allow_http"},
		},
		"half of the keys": {
			func(l *Loaded) { l.Bucket, l.S3.AccessKey = "s3://bucket/p", "k" },
			[]string{"both an access key and a secret key"},
		},
		"keys for a folder": {func(l *Loaded) { l.S3.SecretKey = "k" }, []string{"are for a bucket of the form s3://", "remove them"}},
		"kafka to the world": {
			func(l *Loaded) { l.Kafka.Listen = "192.0.2.1:9092" },
			[]string{"without encryption or authentication", "set kafka.allow_plaintext"},
		},
		"kafka to a name": {func(l *Loaded) { l.Kafka.Listen = "broker.example:9092" }, []string{"other machines", "kafka.allow_plaintext"}},
		"wildcard without advertised": {
			func(l *Loaded) { l.Kafka.Listen, l.Kafka.AllowPlaintext = "0.0.0.0:9092", true },
			[]string{"is every address", "set kafka.advertised"},
		},
		"port alone":           {func(l *Loaded) { l.Kafka.Listen, l.Kafka.AllowPlaintext = ":9092", true }, []string{"set kafka.advertised"}},
		"advertised 0.0.0.0":   {func(l *Loaded) { l.Kafka.Advertised = "0.0.0.0:9092" }, []string{"clients would connect to themselves", "give the host name"}},
		"advertised ::":        {func(l *Loaded) { l.Kafka.Advertised = "[::]:9092" }, []string{"clients would connect to themselves"}},
		"advertised not host":  {func(l *Loaded) { l.Kafka.Advertised = "host" }, []string{"kafka.advertised", "want HOST:PORT"}},
		"listen not host":      {func(l *Loaded) { l.Kafka.Listen = "127.0.0.1:99999" }, []string{"kafka.listen", "want HOST:PORT"}},
		"admin to the world":   {func(l *Loaded) { l.Admin.Listen = "0.0.0.0:8092" }, []string{"could delete topics", "set admin.allow_remote"}},
		"equal ports":          {func(l *Loaded) { l.Admin.Listen = l.Kafka.Listen }, []string{"want the same port", "change one"}},
		"unknown ack":          {func(l *Loaded) { l.Topics.Defaults["strandline.ack"] = "none" }, []string{"strandline.ack", "choose one of fsync, interval, os"}},
		"bad segment bytes":    {func(l *Loaded) { l.Topics.Defaults["segment.bytes"] = "1" }, []string{"segment.bytes", "14 to"}},
		"tiering, no bucket":   {func(l *Loaded) { l.Bucket, l.Topics.Defaults["remote.storage.enable"] = "", "true" }, []string{"no bucket", "set bucket first"}},
		"request above memory": {func(l *Loaded) { l.Kafka.MaxRequestBytes = 1 << 40 }, []string{"does not fit", "lower this"}},
		"no workers":           {func(l *Loaded) { l.CopyWorkers = 0 }, []string{"copy.workers", "1 to 1024"}},
	} {
		l := valid(t)
		c.change(l)
		err := l.Validate()
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want ...%s...", name, err, want)
			}
		}
	}
}

func TestSafeCombinationsAreAccepted(t *testing.T) {
	for name, change := range map[string]func(*Loaded){
		"as it is":              func(*Loaded) {},
		"no bucket":             func(l *Loaded) { l.Bucket = "" },
		"memory":                func(l *Loaded) { l.Bucket = "memory:" },
		"sibling with a prefix": func(l *Loaded) { l.Bucket = "dir:" + l.DataDir + "-bucket" },
		"http on this machine":  func(l *Loaded) { l.Bucket = "s3://bucket/p?endpoint=http://127.0.0.1:7070" },
		"https":                 func(l *Loaded) { l.Bucket = "s3://bucket/p?endpoint=https://s3.example" },
		"http allowed":          func(l *Loaded) { l.Bucket, l.S3.AllowHTTP = "s3://bucket/p?endpoint=http://10.0.0.1:1", true },
		"keys":                  func(l *Loaded) { l.Bucket, l.S3.AccessKey, l.S3.SecretKey = "s3://bucket/p", "a", "b" },
		"wildcard, advertised": func(l *Loaded) {
			l.Kafka.Listen, l.Kafka.Advertised, l.Kafka.AllowPlaintext = "0.0.0.0:9092", "broker.example:9092", true
		},
		"localhost, IPv6":     func(l *Loaded) { l.Kafka.Listen, l.Admin.Listen = "localhost:9092", "[::1]:8092" },
		"ports are free":      func(l *Loaded) { l.Kafka.Listen, l.Admin.Listen = "127.0.0.1:0", "127.0.0.1:0" },
		"admin, two machines": func(l *Loaded) { l.Admin.Listen, l.Admin.AllowRemote = "192.0.2.1:9092", true },
	} {
		l := valid(t)
		change(l)
		if err := l.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBucketReachedThroughALinkIsSeen(t *testing.T) {
	l := valid(t)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(l.DataDir, link); err != nil {
		t.Fatal(err)
	}
	l.Bucket = "dir:" + link + "/bucket"
	if err := l.Validate(); err == nil || !strings.Contains(err.Error(), "is inside data_dir") {
		t.Errorf("got %v", err)
	}
}

func TestSecretInAFileThatOthersCanRead(t *testing.T) {
	text := "bucket: s3://bucket/p\ndata_dir: /var/lib/strandline\ns3:\n  access_key: a\n  secret_key: b\n"
	if err := load(t, Sources{File: writeConfig(t, 0o600, text)}).Validate(); err != nil {
		t.Errorf("private file: %v", err)
	}
	err := load(t, Sources{File: writeConfig(t, 0o644, text)}).Validate()
	if err == nil || !strings.Contains(err.Error(), "chmod 600") || !strings.Contains(err.Error(), "STRANDLINE_S3_") {
		t.Errorf("public file: %v", err)
	}
	err = load(t, Sources{
		File:    writeConfig(t, 0o644, "bucket: s3://bucket/p\ndata_dir: /var/lib/strandline\n"),
		Environ: []string{"STRANDLINE_S3_ACCESS_KEY=a", "STRANDLINE_S3_SECRET_KEY=b"},
	}).Validate()
	if err != nil {
		t.Errorf("public file without keys: %v", err)
	}
}

func TestDefaultsAreValid(t *testing.T) {
	c := DefaultConfig()
	c.DataDir = "/var/lib/strandline"
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	if c.DrainTimeout != time.Minute || c.Kafka.Listen != "127.0.0.1:9092" || c.Admin.Listen != "127.0.0.1:8092" || !c.Topics.AutoCreate {
		t.Errorf("defaults moved: %+v", c)
	}
}

// TestReferenceIsCurrent compares the page with the tables. To write it anew:
// STRANDLINE_TEST_UPDATE=1 go test ./gateway -run TestReferenceIsCurrent.
func TestReferenceIsCurrent(t *testing.T) {
	const page = "../docs/CONFIGURATION.md"
	want := ConfigReference()
	if os.Getenv("STRANDLINE_TEST_UPDATE") != "" {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what ConfigReference makes: run STRANDLINE_TEST_UPDATE=1 go test ./gateway -run TestReferenceIsCurrent", page)
	}
	for _, s := range (&Config{}).settings() {
		if s.doc == "" || s.kind == "" {
			t.Errorf("%s is not explained", s.key)
		}
	}
}
