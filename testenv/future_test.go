package testenv_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline-io/strandline/gateway/admin/client"
	"github.com/strandline-io/strandline/testenv"
)

// TestReport110HeldPartitionsAreNamed: twelve partitions have a record dated in ten
// years in their oldest segment, all of which are in the bucket and older than
// retention.ms. Readiness names ten of them and says that there are more, and nothing
// once a trim has taken the last of them.
func TestReport110HeldPartitionsAreNamed(t *testing.T) {
	const partitions = 12
	n := testenv.Start(t)
	n.CreateTopic("log", partitions, kept("message.timestamp.after.max.ms", fmt.Sprint(int64(1)<<62), "retention.ms", "1000"))
	ctx, cancel := n.Context()
	defer cancel()
	cl := kafka(t, n, kgo.DefaultProduceTopic("log"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for p := range int32(partitions) {
		r := &kgo.Record{Partition: p, Value: []byte("v"), Timestamp: time.Now().AddDate(10, 0, 0)}
		if err := cl.ProduceSync(ctx, r).FirstErr(); err != nil {
			t.Fatal(err)
		}
		a := n.Admin()
		for _, err := range []error{a.Roll(ctx, "log", p), a.Copy(ctx, "log", p, true), a.Retain(ctx, "log", p, true)} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	warning := func(n *testenv.Node) string {
		t.Helper()
		h, err := n.Admin().Ready(ctx)
		if err != nil || h.Status != "ok" {
			t.Fatalf("%+v, %v", h, err)
		}
		return strings.Join(h.Warnings, "\n")
	}
	got := warning(n)
	if !strings.Contains(got, "in 12 partitions: log-0 from offset 0 on") || strings.Count(got, "log-") != 10 || !strings.Contains(got, "and 2 more") {
		t.Errorf("%s", got)
	}
	for p := range int32(partitions) {
		if p == 7 {
			continue
		}
		if _, err := n.Admin().Trim(ctx, "log", p, client.Trim{To: new(client.Position(1)), Confirm: true}); err != nil {
			t.Fatal(err)
		}
	}
	if got := warning(n); !strings.Contains(got, "in 1 partitions: log-7 from offset 0 on") {
		t.Errorf("%s", got)
	}
	if _, err := n.Admin().Trim(ctx, "log", 7, client.Trim{To: new(client.Position(1)), Confirm: true}); err != nil {
		t.Fatal(err)
	}
	if got := warning(n); got != "" {
		t.Errorf("%s", got)
	}
}
