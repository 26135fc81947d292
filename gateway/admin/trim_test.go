package admin

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/strandline-io/strandline/gateway/admin/client"
	"github.com/strandline-io/strandline/tiers/batch"
	"github.com/strandline-io/strandline/tiers/partition"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

// stamped writes one record per time to orders-0.
func (r *rig) stamped(times ...int64) {
	r.t.Helper()
	o, err := r.broker.Owner("orders", 0)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, ms := range times {
		b, err := batch.Builder{ProducerID: -1}.Build([]batch.Record{{Timestamp: ms, Value: []byte("v")}})
		if err != nil {
			r.t.Fatal(err)
		}
		if _, err := o.Append(r.t.Context(), partition.AppendRequest{Batch: b}); err != nil {
			r.t.Fatal(err)
		}
	}
}

// unordered makes a topic with four records whose times are not in order, two of
// them in the bucket. It keeps them for ever, so that only a trim deletes.
func (r *rig) unordered() {
	r.t.Helper()
	if _, err := r.client.CreateTopic(r.t.Context(), client.NewTopic{Name: "orders", Configs: map[string]string{"retention.ms": "-1"}}); err != nil {
		r.t.Fatal(err)
	}
	r.stamped(100_000, 50_000)
	if err := r.client.Roll(r.t.Context(), "orders", 0); err != nil {
		r.t.Fatal(err)
	}
	if err := r.client.Copy(r.t.Context(), "orders", 0, true); err != nil {
		r.t.Fatal(err)
	}
	r.stamped(900_000, 60_000)
}

// TestReport036DryRunSaysWhatWouldGo, exactly, and nothing goes.
func TestReport036DryRunSaysWhatWouldGo(t *testing.T) {
	r := newRig(t)
	r.unordered()
	for body, want := range map[string]client.Trimmed{
		`{"before":500000,"dry_run":true}`:                        {Offset: 2, Offsets: 2, Segments: 1, Newest: 100_000},
		`{"before":"1970-01-01T00:08:20Z","dry_run":true}`:        {Offset: 2, Offsets: 2, Segments: 1, Newest: 100_000},
		`{"before":60000,"dry_run":true}`:                         {Newest: -1},
		`{"before":"2026-01-01T00:00:00+02:00","dry_run":true}`:   {Offset: 4, Offsets: 4, Segments: 2, Newest: 900_000},
		`{"to":4,"before":500000,"dry_run":true}`:                 {Offset: 4, Offsets: 4, Segments: 2, Newest: 900_000, Newer: true},
		`{"to":"latest","dry_run":true}`:                          {Offset: 4, Offsets: 4, Segments: 2, Newest: 900_000},
		`{"to":1,"dry_run":true}`:                                 {Offset: 1, Offsets: 1, Newest: 100_000},
		`{"to":0,"dry_run":true,"allow_newer":true,"before":500}`: {Newest: -1},
	} {
		resp, raw := r.call("POST", "/v1/topics/orders/partitions/0/trim", body)
		var got client.Trimmed
		if err := json.Unmarshal([]byte(raw), &got); err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %d %s", body, resp.StatusCode, raw)
			continue
		}
		if (got.LocalBytes > 0) != (got.Segments > 0) || (got.RemoteBytes > 0) != (got.Segments > 0) {
			t.Errorf("%s: bytes %+v", body, got)
		}
		got.LocalBytes, got.RemoteBytes = 0, 0
		want.Topic = "orders"
		if got != want {
			t.Errorf("%s:\n got %+v\nwant %+v", body, got, want)
		}
	}
	d, err := r.client.Topic(t.Context(), "orders")
	if err != nil || d.Detail[0].LogStart != 0 {
		t.Errorf("a dry run deleted something: %+v, %v", d, err)
	}
}

// TestReport036TrimNeedsToBeMeant: without a word, with two contradicting words,
// or where newer records would go, nothing is deleted.
func TestReport036TrimNeedsToBeMeant(t *testing.T) {
	r := newRig(t)
	r.unordered()
	for body, c := range map[string]struct {
		status int
		says   string
	}{
		`{"to":2}`:                                   {400, "ask with dry_run first, then with confirm"},
		`{"to":2,"dry_run":true,"confirm":true}`:     {400, "contradict each other"},
		`{"to":4,"before":500000,"confirm":true}`:    {400, "not before 1970-01-01T00:08:20.000Z"},
		`{"confirm":true}`:                           {400, "say up to where"},
		`{"to":5,"confirm":true}`:                    {400, "high watermark is 4"},
		`{"to":-1,"confirm":true}`:                   {400, `neither an offset nor "latest"`},
		`{"to":"earliest","confirm":true}`:           {400, `neither an offset nor "latest"`},
		`{"before":"yesterday","confirm":true}`:      {400, "RFC 3339"},
		`{"before":-5,"confirm":true}`:               {400, "RFC 3339"},
		`{"to":2,"confirm":true,"force":true}`:       {400, "force"},
		`{"before":"1969-01-01T00:00:00Z","to":"1"}`: {400, "neither"},
	} {
		resp, raw := r.call("POST", "/v1/topics/orders/partitions/0/trim", body)
		var p client.Problem
		if err := json.Unmarshal([]byte(raw), &p); err != nil || resp.StatusCode != c.status || !strings.Contains(p.Detail, c.says) {
			t.Errorf("%s: %d %s, want %d ...%s...", body, resp.StatusCode, raw, c.status, c.says)
		}
	}
	_, err := r.client.Trim(t.Context(), "orders", 1, client.Trim{To: new(client.Position(1)), DryRun: true})
	wantProblem(t, "no such partition", err, http.StatusNotFound)
	wantProblem(t, "retain nothing", r.client.Retain(t.Context(), "other", 0, true), http.StatusNotFound)
	d, err := r.client.Topic(t.Context(), "orders")
	if err != nil || d.Detail[0].LogStart != 0 {
		t.Errorf("something was deleted: %+v, %v", d, err)
	}
}

// TestChangesThatDeleteAreTold before they are made.
func TestChangesThatDeleteAreTold(t *testing.T) {
	r := newRig(t)
	r.unordered() // in 1970, two of four records are copied
	check := func(what string, changes map[string]*string, want ...client.Effect) {
		t.Helper()
		got, err := r.client.CheckConfigs(t.Context(), "orders", changes)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			return
		}
		if len(got) != len(want) {
			t.Errorf("%s: %+v, want %+v", what, got, want)
			return
		}
		for i, w := range want {
			if (got[i].LocalBytes > 0) != (w.Segments > 0) || (got[i].RemoteBytes > 0) != (w.Segments > 0) {
				t.Errorf("%s: bytes %+v", what, got[i])
			}
			got[i].LocalBytes, got[i].RemoteBytes = 0, 0
			if got[i] != w {
				t.Errorf("%s: %+v, want %+v", what, got[i], w)
			}
		}
	}
	check("something else", map[string]*string{"segment.bytes": new("5000")})
	check("by age", map[string]*string{"retention.ms": new("1000")}, client.Effect{NewLogStart: 4, Segments: 2})
	check("the default", map[string]*string{"retention.ms": nil}, client.Effect{NewLogStart: 4, Segments: 2})
	check("by size, enough", map[string]*string{"retention.bytes": new("100000")})
	check("by size", map[string]*string{"retention.bytes": new("0")}, client.Effect{NewLogStart: 4, Segments: 2})
	check("local disk alone", map[string]*string{"local.retention.ms": new("0")})
	_, err := r.client.CheckConfigs(t.Context(), "orders", map[string]*string{"retention.ms": new("x")})
	wantProblem(t, "not a number", err, http.StatusBadRequest, "not a whole number")
	_, err = r.client.CheckConfigs(t.Context(), "orders", map[string]*string{"remote.storage.enable": new("false")})
	wantProblem(t, "switch off", err, http.StatusBadRequest, "0 offsets in 0 segments of 0 bytes", "remote.log.copy.disable=true", "remote.log.delete.on.disable=true")
	// Everything is on disk as well: no record goes, and the objects do.
	off, err := r.client.CheckConfigs(t.Context(), "orders", map[string]*string{"remote.storage.enable": new("false"), "remote.log.delete.on.disable": new("true")})
	if err != nil || len(off) != 1 || off[0].NewLogStart != 0 || off[0].Segments != 0 || off[0].LocalBytes != 0 || off[0].RemoteBytes == 0 {
		t.Errorf("switch off and delete: %+v, %v", off, err)
	}
	if configs, err := r.client.Configs(t.Context(), "orders"); err != nil || configOf(configs, "retention.ms") != "-1" || configOf(configs, "segment.bytes") != "1073741824" {
		t.Errorf("a check changed something: %+v, %v", configs, err)
	}
}

func configOf(all []client.ConfigEntry, name string) string {
	for _, e := range all {
		if e.Name == name {
			return e.Value
		}
	}
	return ""
}

// TestSegmentsAreAddedUp, each byte once.
func TestSegmentsAreAddedUp(t *testing.T) {
	r := newRig(t)
	r.unordered()
	if err := r.client.Roll(t.Context(), "orders", 0); err != nil {
		t.Fatal(err)
	}
	r.stamped(70_000)
	x, err := r.client.Explain(t.Context(), "orders", 0)
	if err != nil || len(x.Segments) != 3 {
		t.Fatalf("%+v, %v", x, err)
	}
	var local, remote, both int64
	for _, s := range x.Segments {
		if s.Tier != "remote" {
			local += s.Bytes
		}
		if s.Tier != "local" {
			remote += s.Bytes
		}
		if s.Tier == "both" {
			both += s.Bytes
		}
	}
	m := x.Summary
	if m.LocalBytes != local || m.RemoteBytes != remote || m.BothBytes != both || m.TotalBytes != local+remote-both || both == 0 {
		t.Errorf("%+v of %+v", m, x.Segments)
	}
	if m.LogStart != 0 || m.HighWatermark != 5 || m.LogEnd != 5 || m.LocalLogStart != 0 || m.RemoteEnd < 2 {
		t.Errorf("%+v", m)
	}
	if len(m.Next) != 2 || !strings.Contains(m.Next[0], "retention.ms sets no limit") || !strings.Contains(m.Next[1], "retention.bytes sets no limit") {
		t.Errorf("%q", m.Next)
	}
	if err := r.client.AlterConfigs(t.Context(), "orders", map[string]*string{"retention.bytes": new("100000")}); err != nil {
		t.Fatal(err)
	}
	if x, err = r.client.Explain(t.Context(), "orders", 0); err != nil || !strings.Contains(x.Summary.Next[1], " bytes of retention.bytes=100000") {
		t.Errorf("%q, %v", x.Summary.Next, err)
	}
}

// holdCopies has uploads of segments wait until release is called.
func (r *rig) holdCopies() (release func()) {
	hold := make(chan struct{})
	r.bucket.Add(memory.Fault{Ops: memory.OpPut, Key: "topics/", Sticky: true, Hold: hold})
	return sync.OnceFunc(func() { close(hold) })
}

// TestCopyLagIsTheClosedSegmentsThatAreNotInTheBucket.
func TestCopyLagIsTheClosedSegmentsThatAreNotInTheBucket(t *testing.T) {
	r := newRig(t)
	r.create("orders")
	release := r.holdCopies()
	defer release()
	r.append(3)
	if err := r.client.Roll(t.Context(), "orders", 0); err != nil {
		t.Fatal(err)
	}
	r.append(1)
	lag := func() (int64, int64) {
		t.Helper()
		d, err := r.client.Topic(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		x, err := r.client.Explain(t.Context(), "orders", 0)
		if err != nil || x.Summary.CopyLagBytes != d.Detail[0].CopyLagBytes {
			t.Errorf("%+v, %+v, %v", x.Summary, d.Detail[0], err)
		}
		return d.Detail[0].CopyLagBytes, x.Segments[0].Bytes
	}
	if got, want := lag(); got != want || got == 0 {
		t.Errorf("lag %d, the closed segment has %d", got, want)
	}
	release()
	if err := r.client.Copy(t.Context(), "orders", 0, true); err != nil {
		t.Fatal(err)
	}
	if got, _ := lag(); got != 0 {
		t.Errorf("lag %d once all is copied", got)
	}
}
