package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline-io/strandline/gateway"
	"github.com/strandline-io/strandline/gateway/admin/client"
	"github.com/strandline-io/strandline/tiers/fsys/mem"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

// shell runs command lines against a node with a topic "orders": two partitions,
// the first one with four records whose times are not in order, two of them in
// the bucket.
type shell struct {
	t     *testing.T
	admin string
}

func newShell(t *testing.T) *shell {
	t.Helper()
	c := gateway.DefaultConfig()
	c.DataDir, c.Bucket = "/data", "memory:"
	c.Kafka.Listen, c.Admin.Listen = "127.0.0.1:0", "127.0.0.1:0"
	n, err := gateway.Start(t.Context(), c, gateway.Deps{FS: mem.New(), Bucket: memory.New()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
		defer cancel()
		if err := n.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	s := &shell{t, n.AdminAddr()}
	s.must("topic", "create", "orders", "--partitions", "2", "--set", "retention.ms=-1")
	cl, err := kgo.NewClient(kgo.SeedBrokers(n.KafkaAddr()), kgo.DefaultProduceTopic("orders"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for i, ms := range []int64{100_000, 50_000, 900_000, 60_000} {
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Value: []byte("v"), Timestamp: time.UnixMilli(ms)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if a := client.New(s.admin, nil); i == 1 {
			if err := a.Roll(t.Context(), "orders", 0); err != nil {
				t.Fatal(err)
			}
			if err := a.Copy(t.Context(), "orders", 0, true); err != nil {
				t.Fatal(err)
			}
		}
	}
	return s
}

// run runs a command line against the node.
func (s *shell) run(args ...string) (stdout, stderr string, code int) {
	s.t.Helper()
	var out, errs bytes.Buffer
	cmd := root()
	cmd.SetArgs(append(args, "--admin", s.admin))
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	err := cmd.ExecuteContext(s.t.Context())
	switch {
	case err == nil:
	case isUsage(err):
		code = 2
	default:
		code = 1
	}
	if err != nil {
		fmt.Fprintln(&errs, err)
	}
	return out.String(), errs.String(), code
}

func (s *shell) must(args ...string) string {
	s.t.Helper()
	out, errs, code := s.run(args...)
	if code != 0 {
		s.t.Fatalf("%v: %d %s", args, code, errs)
	}
	return out
}

// starts are the log starts of both partitions.
func (s *shell) starts() (out [2]int64) {
	s.t.Helper()
	t, err := client.New(s.admin, nil).Topic(s.t.Context(), "orders")
	if err != nil {
		s.t.Fatal(err)
	}
	for i, p := range t.Detail {
		out[i] = p.LogStart
	}
	return out
}

func decode[T any](t *testing.T, s string) (out T) {
	t.Helper()
	if err := json.Unmarshal([]byte(s), &out); err != nil {
		t.Fatalf("%v in %s", err, s)
	}
	return out
}

// TestReport036TrimCommand: a dry run by default, --yes for what is meant, and
// --allow-newer for what --before forbids.
func TestReport036TrimCommand(t *testing.T) {
	s := newShell(t)
	out := s.must("topic", "trim", "orders/0", "--before", "1970-01-01T00:08:20Z")
	if !strings.Contains(out, "a dry run, nothing was deleted: say --yes") || !strings.Contains(out, "1970-01-01 00:01:40.000") || s.starts() != [2]int64{} {
		t.Errorf("%v after:\n%s", s.starts(), out)
	}
	plans := decode[[]client.Trimmed](t, s.must("topic", "trim", "orders", "--before", "500000", "--json"))
	if len(plans) != 2 || plans[0].Offset != 2 || plans[0].Newest != 100_000 || plans[1].Offset != 0 || plans[0].Done || s.starts() != [2]int64{} {
		t.Errorf("%v after %+v", s.starts(), plans)
	}
	out = s.must("topic", "trim", "orders/0", "--to", "latest", "--before", "500000")
	if !strings.Contains(out, "--yes alone does not do that, --allow-newer is needed too") {
		t.Error(out)
	}
	_, errs, code := s.run("topic", "trim", "orders", "--to", "latest", "--before", "500000", "--yes")
	if code != 2 || !strings.Contains(errs, "nothing was deleted") || !strings.Contains(errs, "orders/0 up to 1970-01-01 00:15:00.000") || s.starts() != [2]int64{} {
		t.Errorf("%d %s, %v", code, errs, s.starts())
	}
	plans = decode[[]client.Trimmed](t, s.must("topic", "trim", "orders/0", "--before", "500000", "--yes", "--json"))
	if len(plans) != 1 || !plans[0].Done || plans[0].Offset != 2 || s.starts() != [2]int64{2, 0} {
		t.Errorf("%v after %+v", s.starts(), plans)
	}
	if out = s.must("topic", "trim", "orders", "--to", "latest", "--before", "500000", "--yes", "--allow-newer"); s.starts() != [2]int64{4, 0} || strings.Contains(out, "dry run") {
		t.Errorf("%v after:\n%s", s.starts(), out)
	}
}

func TestTrimCommandRefuses(t *testing.T) {
	s := newShell(t)
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"nothing said":             {[]string{"orders/0"}, 2, "say up to where"},
		"an offset of a topic":     {[]string{"orders", "--to", "1"}, 2, "name one, such as orders/0"},
		"no offset":                {[]string{"orders/0", "--to", "-1"}, 2, "give an offset or latest"},
		"no time":                  {[]string{"orders/0", "--before", "noon"}, 2, "2026-05-04T03:02:01Z"},
		"before 1970":              {[]string{"orders/0", "--before", "1969-01-01"}, 2, "milliseconds since 1970"},
		"beyond the end":           {[]string{"orders/0", "--to", "5", "--yes"}, 1, "high watermark is 4"},
		"no such topic":            {[]string{"others", "--to", "latest", "--yes"}, 1, "others"},
		"no such partition":        {[]string{"orders/2", "--to", "0"}, 1, "the topic has 2"},
		"a partition that is none": {[]string{"orders/x", "--to", "0"}, 2, "TOPIC/PARTITION"},
	} {
		_, errs, code := s.run(append([]string{"topic", "trim"}, c.args...)...)
		if code != c.code || !strings.Contains(errs, c.says) {
			t.Errorf("%s: %d %s, want %d ...%s...", name, code, errs, c.code, c.says)
		}
	}
	if s.starts() != [2]int64{} {
		t.Error("something was deleted:", s.starts())
	}
}

// TestConfigCommandAsksBeforeItDeletes, says what would go, and asks about nothing
// else.
func TestConfigCommandAsksBeforeItDeletes(t *testing.T) {
	s := newShell(t)
	value := func(name string) string {
		t.Helper()
		for _, e := range decode[[]client.ConfigEntry](t, s.must("topic", "config", "orders", "--json")) {
			if e.Name == name {
				return e.Value
			}
		}
		return ""
	}
	for _, args := range [][]string{{"--set", "retention.ms=1000"}, {"--unset", "retention.ms"}, {"--set", "retention.bytes=0"}} {
		_, errs, code := s.run(append([]string{"topic", "config", "orders"}, args...)...)
		if code != 2 || !strings.Contains(errs, "orders/0: offsets [0,4), segments: 2, ") || strings.Contains(errs, "orders/1") || !strings.Contains(errs, "say --yes") {
			t.Errorf("%v: %d %s", args, code, errs)
		}
		if value("retention.ms") != "-1" || value("retention.bytes") != "-1" {
			t.Errorf("%v: changed without a yes", args)
		}
	}
	_, errs, code := s.run("topic", "config", "orders", "--set", "remote.storage.enable=false", "--yes")
	if code != 1 || !strings.Contains(errs, "remote.log.copy.disable=true") || !strings.Contains(errs, "remote.log.delete.on.disable=true") {
		t.Errorf("%d %s", code, errs)
	}
	if _, errs, code = s.run("topic", "config", "orders", "--set", "segment.ms=100000000", "--set", "local.retention.bytes=100000000"); code != 0 || errs != "" {
		t.Errorf("what deletes nothing: %d %s", code, errs)
	}
	if out := s.must("topic", "config", "orders", "--set", "segment.ms=100000000", "--unset", "segment.bytes"); strings.Count(out, "\n") != 3 || !strings.Contains(out, "segment.ms") || !strings.Contains(out, "segment.bytes") {
		t.Errorf("what changed is not what is shown:\n%s", out)
	}
	if _, errs, code = s.run("topic", "config", "orders", "--set", "retention.ms=1000", "--yes"); code != 0 || !strings.Contains(errs, "offsets [0,4)") || value("retention.ms") != "1000" {
		t.Errorf("with a yes: %d %s", code, errs)
	}
	s.must("topic", "retain", "orders")
	if got := s.starts(); got[0] != 4 {
		t.Errorf("log start %d after a pass", got[0])
	}
}

func TestSegmentsCommandExplains(t *testing.T) {
	s := newShell(t)
	out := s.must("segments", "orders/0", "--explain")
	for _, want := range []string{"WHY", "offsets: log start 0, local start 0, remote end 2, high watermark 4, log end 4", "bytes: ", "to be copied still", "retention: by age: retention.ms sets no limit", "retention: by size: retention.bytes sets no limit"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	x := decode[client.Segments](t, s.must("segments", "orders/0", "--explain", "--json"))
	if len(x.Segments) != 2 || x.Summary.HighWatermark != 4 || x.Summary.BothBytes != x.Segments[0].Bytes {
		t.Errorf("%+v", x)
	}
	for _, seg := range x.Segments {
		if seg.Why == "" || !strings.Contains(out, seg.Why) {
			t.Errorf("no reason for %+v in\n%s", seg, out)
		}
	}
	if plain := decode[[]client.Segment](t, s.must("segments", "orders/0", "--json")); len(plain) != 2 {
		t.Errorf("%+v", plain)
	}
}

// TestRollAndCopyCommands: after both of them everything is in the bucket, and
// after a copy alone what is in the active segment is not.
func TestRollAndCopyCommands(t *testing.T) {
	s := newShell(t)
	remoteEnd := func() int64 {
		topic, err := client.New(s.admin, nil).Topic(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		return topic.Detail[0].RemoteEnd
	}
	s.must("topic", "copy", "orders")
	if end := remoteEnd(); end != 2 {
		t.Fatalf("the bucket ends at %d, want 2", end)
	}
	if out := s.must("topic", "roll", "orders"); !strings.Contains(out, "closed, partitions [0 1]") {
		t.Error(out)
	}
	if out := s.must("topic", "copy", "orders/0", "--json"); !strings.Contains(out, `"topic"`) {
		t.Error(out)
	}
	if end := remoteEnd(); end != 4 {
		t.Errorf("the bucket ends at %d, want 4", end)
	}
	for _, verb := range []string{"roll", "copy"} {
		if _, errs, code := s.run("topic", verb, "none"); code != 1 || !strings.Contains(errs, "none") {
			t.Errorf("%s: %d, %s", verb, code, errs)
		}
	}
}
