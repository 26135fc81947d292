package bench

import (
	"errors"
	"strings"
	"testing"

	"github.com/strandline-io/strandline/gateway/admin/client"
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
	if c.Objects != want || c.FromBucket*10 < want*9 || c.FromBucket > want {
		t.Errorf("%d of %d bytes came from the bucket, want about %d", c.FromBucket, c.Objects, want)
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

// TestColdOfACache: what the node still has in memory is not measured as a cold
// read, and not compared with one.
func TestColdOfACache(t *testing.T) {
	n := testenv.Start(t)
	mustProduce(t, produceOptions([]string{n.KafkaAddr()}, 3000))
	o := coldOptions(n)
	if rep, err := Cold(t.Context(), o); err != nil || rep.Cold.Ratio <= 0 || len(rep.Notes) != 0 {
		t.Fatalf("the first run: %+v, %v, %v", rep.Cold, rep.Notes, err)
	}
	rep, err := Cold(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	c := rep.Cold
	if c.Objects == 0 || c.FromBucket*10 > c.Objects || c.Ratio != 0 || c.Plain == nil || !strings.Contains(strings.Join(rep.Notes, " "), "Restart the node") {
		t.Errorf("%+v, %v", c, rep.Notes)
	}
	var text strings.Builder
	if _, err := rep.WriteTo(&text); err != nil || strings.Contains(text.String(), "cold / plain") || !strings.Contains(text.String(), "the rest from the node's cache") {
		t.Errorf("%v: %s", err, text.String())
	}
}

// TestColdPart: a limit asks for part of the objects only.
func TestColdPart(t *testing.T) {
	for _, v := range []struct {
		down, objects, from int64
		limited, cold       bool
	}{
		{1000, 1000, 1000, false, true},
		{5000, 1000, 1000, false, true},
		{899, 1000, 899, false, false},
		{900, 1000, 900, false, true},
		{300, 250, 250, true, true},
		{200, 250, 200, true, false},
	} {
		rep := Report{Records: 25, Server: &ServerCost{BucketDown: v.down}}
		c := ColdReport{Offsets: 100}
		c.came(&rep, []client.Segment{{Bytes: 600}, {Bytes: 400}}, v.limited)
		if c.Objects != v.objects || c.FromBucket != v.from || c.cold() != v.cold || (len(rep.Notes) == 0) != v.cold {
			t.Errorf("%+v: %+v, %v", v, c, rep.Notes)
		}
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
