package kafka

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/tiers/partition"
)

// TestFetchColdPartitionsTakeTurns: more partitions in the bucket than a fetch
// reads at once. Each gets its turn as places become free.
func TestFetchColdPartitionsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 3 * maxColds
		r := newRig(t, Limits{})
		defer r.stop()
		r.node.create(t, "known", n)
		var parts []wanted
		open := make(chan struct{})
		for i := range int32(n) {
			log := r.node.log(t, "known", i)
			log.fill(t, 3, 10)
			log.bucket = open
			log.change(func(v *partition.View) { v.LocalLogStart = 2 })
			parts = append(parts, wanted{name: "known", index: i})
		}
		c := r.pipe()
		defer c.nc.Close()
		req := fetchOf(12, parts...)
		req.MaxWaitMillis, req.MinBytes = 5_000, 1<<20
		go func() { time.Sleep(time.Second); close(open) }()
		got := 0
		for _, p := range ask[*kmsg.FetchResponse](c, req).Topics[0].Partitions {
			if len(p.RecordBatches) > 0 {
				got++
			}
		}
		if got != n {
			t.Errorf("%d of %d partitions were read", got, n)
		}
		c.nc.Close()
		synctest.Wait()
		r.balanced()
	})
}

// TestFetchSessionPartsAreBounded: a session that grows too large ends, and so does
// the growth of all of them.
func TestFetchSessionPartsAreBounded(t *testing.T) {
	ss := newSessions(10, time.Minute, prometheus.NewGauge(prometheus.GaugeOpts{Name: "sessions", Help: "Sessions."}))
	ss.maxParts, ss.maxAll = 4, 6
	many := func(from, n int32) (out []wanted) {
		for i := from; i < from+n; i++ {
			out = append(out, wanted{name: "t", index: i})
		}
		return out
	}
	now := time.Unix(1, 0)
	if ss.open(false, many(0, 5), now) != nil {
		t.Error("a session of 5 partitions was made")
	}
	s := ss.open(false, many(0, 3), now)
	if s == nil || ss.parts != 3 {
		t.Fatal(s, ss.parts)
	}
	grow := func(s *session, epoch int32, parts []wanted) int16 {
		req := kmsg.NewPtrFetchRequest()
		req.Version, req.SessionID, req.SessionEpoch = 12, s.id, epoch
		_, code := ss.begin(req, parts, nil, now)
		return code
	}
	if code := grow(s, 1, many(3, 1)); code != codeNone || ss.parts != 4 {
		t.Fatal(code, ss.parts)
	}
	if ss.open(false, many(0, 3), now) != nil {
		t.Error("7 partitions in all sessions")
	}
	other := ss.open(false, many(0, 2), now)
	if other == nil || ss.parts != 6 {
		t.Fatal(other, ss.parts)
	}
	if code := grow(s, 2, many(4, 1)); code != codeSessionNotFound || ss.parts != 2 {
		t.Errorf("code %d, %d partitions are counted", code, ss.parts)
	}
	ss.drop(other.id)
	if ss.parts != 0 || len(ss.byID) != 0 {
		t.Errorf("%d partitions, %d sessions are left", ss.parts, len(ss.byID))
	}
}
