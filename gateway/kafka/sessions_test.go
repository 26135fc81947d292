package kafka

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/tiers"
)

// inSession makes req the next one of a session.
func inSession(req *kmsg.FetchRequest, id, epoch int32) *kmsg.FetchRequest {
	req.SessionID, req.SessionEpoch, req.MaxWaitMillis = id, epoch, 0
	return req
}

func told(resp *kmsg.FetchResponse) string {
	var out []string
	for _, rt := range resp.Topics {
		for _, p := range rt.Partitions {
			out = append(out, fmt.Sprintf("%s-%d:%d:%d", rt.Topic, p.Partition, p.ErrorCode, nextAfter(p.RecordBatches, -1)))
		}
	}
	return fmt.Sprint(out)
}

// TestFetchSessionIsIncremental follows one through its life.
func TestFetchSessionIsIncremental(t *testing.T) {
	r := newRig(t, Limits{})
	defer r.stop()
	r.node.create(t, "known", 3)
	c := r.pipe()
	defer c.nc.Close()
	p := func(i int32, o tiers.Offset) wanted { return wanted{name: "known", index: i, offset: o} }

	resp := ask[*kmsg.FetchResponse](c, inSession(fetchOf(12, p(0, 0), p(1, 0), p(2, 0)), 0, 0))
	id := resp.SessionID
	if id <= 0 || told(resp) != "[known-0:0:-1 known-1:0:-1 known-2:0:-1]" {
		t.Fatalf("first: session %d, %s", id, told(resp))
	}
	check := func(step, want string, epoch int32, change func(*kmsg.FetchRequest), ws ...wanted) {
		t.Helper()
		req := inSession(fetchOf(12, ws...), id, epoch)
		if change != nil {
			change(req)
		}
		resp := ask[*kmsg.FetchResponse](c, req)
		if resp.ErrorCode != 0 || resp.SessionID != id || told(resp) != want {
			t.Errorf("%s: code %d, session %d, %s, want %s", step, resp.ErrorCode, resp.SessionID, told(resp), want)
		}
	}
	check("nothing new", "[]", 1, nil)
	r.node.log(t, "known", 1).fill(t, 1, 10)
	check("records", "[known-1:0:1]", 2, nil)
	check("not asked to move on", "[known-1:0:1]", 3, nil)
	r.node.log(t, "known", 0).fill(t, 1, 10)
	check("one moved on, one new", "[known-0:0:1]", 4, nil, p(1, 1))
	check("moved on", "[]", 5, nil, p(0, 1))
	check("an unknown partition is news every time", "[known-9:3:-1]", 6, nil, p(9, 0))
	check("again", "[known-9:3:-1]", 7, nil)
	check("forgotten", "[]", 8, func(req *kmsg.FetchRequest) {
		ft := kmsg.NewFetchRequestForgottenTopic()
		ft.Topic, ft.Partitions = "known", []int32{9, 44}
		req.ForgottenTopics = append(req.ForgottenTopics, ft)
	})
	check("out of range is news", "[known-2:1:-1]", 9, nil, p(2, 5))

	if code := ask[*kmsg.FetchResponse](c, inSession(fetchOf(12), id, 9)).ErrorCode; code != 71 {
		t.Errorf("an epoch that was used: code %d, want INVALID_FETCH_SESSION_EPOCH", code)
	}
	if code := ask[*kmsg.FetchResponse](c, inSession(fetchOf(12), id+1, 1)).ErrorCode; code != 70 {
		t.Errorf("another session: code %d, want FETCH_SESSION_ID_NOT_FOUND", code)
	}
	if code := ask[*kmsg.FetchResponse](c, inSession(fetchOf(13), id, 10)).ErrorCode; code != 106 {
		t.Errorf("from names to ids: code %d, want FETCH_SESSION_TOPIC_ID_ERROR", code)
	}
	resp = ask[*kmsg.FetchResponse](c, inSession(fetchOf(12, p(0, 1)), id, -1))
	if resp.SessionID != 0 || told(resp) != "[known-0:0:-1]" {
		t.Errorf("final: session %d, %s", resp.SessionID, told(resp))
	}
	if code := ask[*kmsg.FetchResponse](c, inSession(fetchOf(12), id, 10)).ErrorCode; code != 70 {
		t.Errorf("after the end: code %d", code)
	}
}

// TestFetchSessionBusyPartitionsGoLast: a busy one cannot starve the others.
func TestFetchSessionBusyPartitionsGoLast(t *testing.T) {
	r := newRig(t, Limits{})
	defer r.stop()
	r.node.create(t, "known", 3)
	for i := range int32(3) {
		r.node.log(t, "known", i).fill(t, 9, 1000)
	}
	c := r.pipe()
	defer c.nc.Close()
	req := inSession(fetchOf(12, wanted{name: "known"}, wanted{name: "known", index: 1}, wanted{name: "known", index: 2}), 0, 0)
	req.MaxBytes = 1
	id := ask[*kmsg.FetchResponse](c, req).SessionID
	var got []int32
	for epoch := int32(1); epoch <= 6; epoch++ {
		req := inSession(fetchOf(12), id, epoch)
		req.MaxBytes = 1
		for _, rt := range ask[*kmsg.FetchResponse](c, req).Topics {
			for _, p := range rt.Partitions {
				if len(p.RecordBatches) > 0 {
					got = append(got, p.Partition)
				}
			}
		}
	}
	if want := "[0 1 2 0 1 2]"; fmt.Sprint(got) != want {
		t.Errorf("partitions with records: %v, want %s", got, want)
	}
}

// TestReport067SessionKeepsNoDeadID: a topic that was deleted is UNKNOWN_TOPIC_ID,
// one that was made again INCONSISTENT_TOPIC_ID; never silence.
func TestReport067SessionKeepsNoDeadID(t *testing.T) {
	r := newRig(t, Limits{})
	defer r.stop()
	old := r.node.create(t, "known", 1)
	c := r.pipe()
	defer c.nc.Close()
	unknown := tiers.TopicID{88}
	resp := ask[*kmsg.FetchResponse](c, inSession(fetchOf(13, wanted{id: old.ID}, wanted{id: unknown}), 0, 0))
	id := resp.SessionID
	codes := func(epoch int32) (out []int16) {
		for _, rt := range ask[*kmsg.FetchResponse](c, inSession(fetchOf(13), id, epoch)).Topics {
			out = append(out, rt.Partitions[0].ErrorCode)
		}
		return out
	}
	if got := fmt.Sprint(codes(1)); got != "[100]" {
		t.Errorf("at first: %v, want the unknown one", got)
	}
	if err := r.node.DeleteTopic(t.Context(), old.ID); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(codes(2)); got != "[100 100]" {
		t.Errorf("deleted: %v", got)
	}
	r.node.create(t, "known", 1)
	if got := fmt.Sprint(codes(3)); got != "[103 100]" {
		t.Errorf("made again: %v", got)
	}
	resp = ask[*kmsg.FetchResponse](c, inSession(fetchOf(13, wanted{id: old.ID, offset: 7}), id, 4))
	if code := part(resp, 0).ErrorCode; code != 103 {
		t.Errorf("asked for again by the dead id: code %d", code)
	}
}

func TestFetchSessionThatForgetsAllEnds(t *testing.T) {
	r := newRig(t, Limits{})
	defer r.stop()
	topic := r.node.create(t, "known", 1)
	c := r.pipe()
	defer c.nc.Close()
	id := ask[*kmsg.FetchResponse](c, inSession(fetchOf(13, wanted{id: topic.ID}), 0, 0)).SessionID
	req := inSession(fetchOf(13), id, 1)
	ft := kmsg.NewFetchRequestForgottenTopic()
	ft.TopicID, ft.Partitions = topic.ID, []int32{0}
	req.ForgottenTopics = append(req.ForgottenTopics, ft)
	if resp := ask[*kmsg.FetchResponse](c, req); resp.SessionID != 0 || resp.ErrorCode != 0 {
		t.Errorf("session %d, code %d", resp.SessionID, resp.ErrorCode)
	}
	if n := len(r.srv.sessions.byID); n != 0 {
		t.Errorf("%d sessions are kept", n)
	}
}

// TestFetchSessionsAreBounded: when there is no room, clients go on without one;
// one that was idle for long gives way.
func TestFetchSessionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Limits{FetchSessions: 2, FetchSessionIdle: time.Minute, IdleTimeout: time.Hour})
		defer r.stop()
		r.node.create(t, "known", 1)
		c := r.pipe()
		defer c.nc.Close()
		open := func() int32 {
			return ask[*kmsg.FetchResponse](c, inSession(fetchOf(12, wanted{name: "known"}), 0, 0)).SessionID
		}
		first, second := open(), open()
		if first == 0 || second == 0 || first == second {
			t.Fatalf("sessions %d and %d", first, second)
		}
		if third := open(); third != 0 {
			t.Errorf("a third session: %d", third)
		}
		time.Sleep(50 * time.Second)
		for _, id := range []int32{first, second} {
			if code := ask[*kmsg.FetchResponse](c, inSession(fetchOf(12), id, 1)).ErrorCode; code != 0 {
				t.Errorf("session %d: code %d", id, code)
			}
		}
		time.Sleep(50 * time.Second)
		if third := open(); third != 0 {
			t.Errorf("a third session, although both were used 50 s ago: %d", third)
		}
		if code := ask[*kmsg.FetchResponse](c, inSession(fetchOf(12), first, 2)).ErrorCode; code != 0 {
			t.Errorf("first session: code %d", code)
		}
		time.Sleep(20 * time.Second)
		if third := open(); third == 0 {
			t.Error("no room, although the second session was idle for 70 s")
		}
		if code := ask[*kmsg.FetchResponse](c, inSession(fetchOf(12), first, 3)).ErrorCode; code != 0 {
			t.Errorf("first session, used lately: code %d", code)
		}
		if code := ask[*kmsg.FetchResponse](c, inSession(fetchOf(12), second, 2)).ErrorCode; code != 70 {
			t.Errorf("second session: code %d, want FETCH_SESSION_ID_NOT_FOUND", code)
		}
	})
}

func TestFetchSessionEpochWraps(t *testing.T) {
	ss := newSessions(9, time.Minute, prometheus.NewGauge(prometheus.GaugeOpts{}))
	s := ss.open(false, []wanted{{name: "t"}}, time.Now())
	s.epoch = math.MaxInt32
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.SessionID, req.SessionEpoch = 12, s.id, math.MaxInt32
	if _, code := ss.begin(req, nil, nil, time.Now()); code != 0 || s.epoch != 1 {
		t.Errorf("code %d, epoch %d, want 0 and 1", code, s.epoch)
	}
}
