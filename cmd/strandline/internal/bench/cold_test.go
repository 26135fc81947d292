package bench

import (
	"errors"
	"strings"
	"testing"

	"github.com/strandline-io/strandline/testenv"
)

func coldOptions(n *testenv.Node) ColdOptions {
	o := ColdOptions{ConsumeOptions: consumeOptions([]string{n.KafkaAddr()}), Evict: true, Bucket: n.Bucket, RangeBytes: 1000}
	o.Admin = n.AdminAddr()
	return o
}

// What was evicted is in the bucket only, comes back whole from there, and the
// plain GETs read the same bytes. The topic has its settings back.
func TestCold(t *testing.T) {
	n := testenv.Start(t)
	p := produceOptions([]string{n.KafkaAddr()}, 3000)
	p.Settings = map[string]string{"segment.bytes": "16384", "local.retention.ms": "1000000"}
	p.BatchBytes = 4 << 10
	mustProduce(t, p)
	o := coldOptions(n)
	if err := o.Valid(); err != nil {
		t.Fatal(err)
	}
	rep, err := Cold(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	c := rep.Cold
	if rep.Records != 3000 || rep.Verify.Missing != 0 || c.Offsets != 3000 || c.RemoteOnly != 3000 || c.Evicted <= 0 || rep.FirstByte <= 0 {
		t.Errorf("%+v, %+v", rep, c)
	}
	var want int64
	for part := range int32(4) {
		segments, err := n.Admin().Segments(t.Context(), TopicPrefix, part)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range segments {
			if s.Key != "" {
				want += s.Bytes
			}
		}
	}
	if c.Plain == nil || c.Plain.Bytes != want || c.Plain.Requests < want/1000 || c.Plain.FirstByte <= 0 || c.Ratio <= 0 || c.Plain.Streams != 4 {
		t.Errorf("%+v, want %d bytes", c.Plain, want)
	}
	topic, err := n.Admin().Topic(t.Context(), TopicPrefix)
	if err != nil || topic.Configs["local.retention.ms"] != "1000000" || topic.Configs["local.retention.bytes"] != "" {
		t.Errorf("%+v, %v", topic.Configs, err)
	}
	var text strings.Builder
	if _, err := rep.WriteTo(&text); err != nil || !strings.Contains(text.String(), "cold / plain") || !strings.Contains(text.String(), "3000 of 3000 offsets") {
		t.Errorf("%v: %s", err, text.String())
	}
}

// A topic that is on local disk is not measured as a cold one, somebody's topic
// is not evicted, and without a node's word the report says so.
func TestColdRefusals(t *testing.T) {
	n := testenv.Start(t)
	p := produceOptions([]string{n.KafkaAddr()}, 100)
	mustProduce(t, p)
	o := coldOptions(n)
	o.Evict = false
	if _, err := Cold(t.Context(), o); err == nil || !strings.Contains(err.Error(), "--evict") {
		t.Error(err)
	}
	p.Topic = "orders"
	mustProduce(t, p)
	o = coldOptions(n)
	o.Topic = "orders"
	if _, err := Cold(t.Context(), o); !errors.Is(err, ErrRefused) {
		t.Error(err)
	}
	o.Yes = true
	if rep, err := Cold(t.Context(), o); err != nil || rep.Records != 100 {
		t.Error(rep, err)
	}
	o = coldOptions(n)
	o.Admin, o.Evict, o.Bucket = "", false, nil
	rep, err := Cold(t.Context(), o)
	if err != nil || rep.Records != 100 || !strings.Contains(strings.Join(rep.Notes, " "), "--admin") {
		t.Errorf("%+v, %v", rep, err)
	}
	for says, change := range map[string]func(*ColdOptions){
		"--evict": func(o *ColdOptions) { o.Admin, o.Bucket = "", nil }, "--bucket": func(o *ColdOptions) { o.Admin, o.Evict = "", false },
		"--range-bytes": func(o *ColdOptions) { o.RangeBytes = 0 }, "--concurrency": func(o *ColdOptions) { o.Clients = 0 },
	} {
		o := coldOptions(n)
		change(&o)
		if err := o.Valid(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}

// The topic goes in the end if that is asked for, after the plain GETs.
func TestColdCleanup(t *testing.T) {
	n := testenv.Start(t)
	mustProduce(t, produceOptions([]string{n.KafkaAddr()}, 100))
	o := coldOptions(n)
	o.Cleanup = true
	rep, err := Cold(t.Context(), o)
	if err != nil || rep.Cold.Plain == nil {
		t.Fatalf("%+v, %v", rep.Cold, err)
	}
	topics, err := n.Admin().Topics(t.Context())
	if err != nil || len(topics) != 0 {
		t.Errorf("%+v, %v", topics, err)
	}
}
