package kafka

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/partition"
)

func listOf(v int16, topic string, index int32, ts int64) *kmsg.ListOffsetsRequest {
	r := kmsg.NewPtrListOffsetsRequest()
	r.Version, r.ReplicaID = v, -1
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition, rp.Timestamp, rp.MaxNumOffsets, rp.CurrentLeaderEpoch = index, ts, 5, -1
	rt.Partitions = append(rt.Partitions, rp)
	r.Topics = append(r.Topics, rt)
	return r
}

// TestListOffsetsSpecialTimestamps: each since its version, and 35 per partition
// before, and for those that never were.
func TestListOffsetsSpecialTimestamps(t *testing.T) {
	r := newRig(t, Limits{})
	defer r.stop()
	r.node.create(t, "known", 1)
	log := r.node.log(t, "known", 0)
	log.fill(t, 9, 10)
	log.change(func(v *partition.View) { v.LogStart, v.LocalLogStart, v.RemoteEnd, v.LastStable = 1, 4, 6, 7 })
	c := r.pipe()
	defer c.nc.Close()
	since := map[int64]int16{-1: 0, -2: 0, -3: 7, -4: 8, -5: 9, -6: 11, -7: 99, -1000: 99}
	want := map[int64]int64{-1: 9, -2: 1, -3: 5, -4: 4, -5: 5, -6: 5}
	for v := int16(1); v <= 11; v++ {
		for ts, first := range since {
			p := ask[*kmsg.ListOffsetsResponse](c, listOf(v, "known", 0, ts)).Topics[0].Partitions[0]
			switch {
			case v < first && (p.ErrorCode != 35 || p.Offset != -1):
				t.Errorf("v%d %d: code %d offset %d, want UNSUPPORTED_VERSION", v, ts, p.ErrorCode, p.Offset)
			case v >= first && (p.ErrorCode != 0 || p.Offset != want[ts]):
				t.Errorf("v%d %d: code %d offset %d, want %d", v, ts, p.ErrorCode, p.Offset, want[ts])
			}
		}
	}
	for _, v := range []int16{1, 2, 11} {
		req := listOf(v, "known", 0, -1)
		req.IsolationLevel = 1
		got := ask[*kmsg.ListOffsetsResponse](c, req).Topics[0].Partitions[0].Offset
		if want := map[int16]int64{1: 9, 2: 7, 11: 7}[v]; got != want {
			t.Errorf("v%d read_committed: latest is %d, want %d", v, got, want)
		}
	}
}

func TestListOffsets(t *testing.T) {
	r := newRig(t, Limits{})
	defer r.stop()
	r.node.create(t, "known", 1)
	log := r.node.log(t, "known", 0)
	log.fill(t, 9, 10)
	log.change(func(v *partition.View) { v.Epoch = 3 })
	c := r.pipe()
	defer c.nc.Close()

	p := ask[*kmsg.ListOffsetsResponse](c, listOf(4, "known", 0, 500)).Topics[0].Partitions[0]
	if p.Offset != 0 || p.Timestamp != 1000 {
		t.Errorf("by time: %+v", p)
	}
	p = ask[*kmsg.ListOffsetsResponse](c, listOf(4, "known", 0, 5000)).Topics[0].Partitions[0]
	if p.ErrorCode != 0 || p.Offset != -1 || p.Timestamp != -1 || p.LeaderEpoch != -1 {
		t.Errorf("no match: %+v", p)
	}
	old := listOf(0, "known", 0, -1)
	if got := ask[*kmsg.ListOffsetsResponse](c, old).Topics[0].Partitions[0].OldStyleOffsets; !slices.Equal(got, []int64{9, 0}) {
		t.Errorf("v0: %v, want the end and the start", got)
	}
	old.Topics[0].Partitions[0].MaxNumOffsets = 1
	if got := ask[*kmsg.ListOffsetsResponse](c, old).Topics[0].Partitions[0].OldStyleOffsets; !slices.Equal(got, []int64{9}) {
		t.Errorf("v0 of one: %v", got)
	}
	for name, req := range map[string]struct {
		req  *kmsg.ListOffsetsRequest
		code int16
	}{
		"unknown topic":     {listOf(4, "unknown", 0, -1), 3},
		"unknown partition": {listOf(4, "known", 4, -1), 3},
		"old epoch": {func() *kmsg.ListOffsetsRequest {
			r := listOf(4, "known", 0, -1)
			r.Topics[0].Partitions[0].CurrentLeaderEpoch = 2
			return r
		}(), 74},
		"replica": {func() *kmsg.ListOffsetsRequest { r := listOf(4, "known", 0, -1); r.ReplicaID = 3; return r }(), 31},
		"twice": {func() *kmsg.ListOffsetsRequest {
			r := listOf(4, "known", 0, -1)
			r.Topics = append(r.Topics, r.Topics[0])
			return r
		}(), 42},
	} {
		for _, rt := range ask[*kmsg.ListOffsetsResponse](c, req.req).Topics {
			if p := rt.Partitions[0]; p.ErrorCode != req.code || p.Offset != -1 {
				t.Errorf("%s: %+v, want code %d", name, p, req.code)
			}
		}
	}
	if got := listTimeout(&kmsg.ListOffsetsRequest{Version: 10, TimeoutMillis: 2000}); got != 2*time.Second {
		t.Errorf("v10 timeout of 2 s: %v", got)
	}
	if got := listTimeout(&kmsg.ListOffsetsRequest{Version: 9, TimeoutMillis: 2000}); got != usualList {
		t.Errorf("v9: %v", got)
	}
}

func commitRequest(v int16, ps ...kmsg.OffsetCommitRequestTopicPartition) *kmsg.OffsetCommitRequest {
	r := kmsg.NewPtrOffsetCommitRequest()
	r.Version, r.Group, r.Generation = v, "g", -1
	rt := kmsg.NewOffsetCommitRequestTopic()
	rt.Topic, rt.Partitions = "known", ps
	r.Topics = append(r.Topics, rt)
	return r
}

func commitPart(index int32, offset int64, epoch int32, metadata string) kmsg.OffsetCommitRequestTopicPartition {
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = index, offset, epoch, &metadata
	return p
}

// TestOffsetsOfASimpleGroup: what one version commits, every version fetches.
func TestOffsetsOfASimpleGroup(t *testing.T) {
	r := newRig(t, Limits{})
	defer r.stop()
	r.node.create(t, "known", 2)
	c := r.pipe()
	defer c.nc.Close()
	for v := int16(0); v <= 9; v++ {
		codes := ask[*kmsg.OffsetCommitResponse](c, commitRequest(v, commitPart(0, int64(100+v), 4, "m"), commitPart(7, 1, 0, ""))).Topics[0].Partitions
		if codes[0].ErrorCode != 0 || codes[1].ErrorCode != 3 {
			t.Errorf("commit v%d: %+v", v, codes)
		}
		epoch := int32(-1)
		if v >= 6 {
			epoch = 4
		}
		for f := int16(0); f <= 9; f++ {
			req := samples(t, 9, f, tiers.TopicID{})[0]
			resp := ask[*kmsg.OffsetFetchResponse](c, req)
			var got string
			for _, rt := range resp.Topics {
				for _, p := range rt.Partitions {
					got += fmt.Sprintln(rt.Topic, p.Partition, p.Offset, p.LeaderEpoch, *p.Metadata, p.ErrorCode)
				}
			}
			for _, g := range resp.Groups {
				for _, rt := range g.Topics {
					for _, p := range rt.Partitions {
						got += fmt.Sprintln(rt.Topic, p.Partition, p.Offset, p.LeaderEpoch, *p.Metadata, p.ErrorCode)
					}
				}
			}
			e := epoch
			if f < 5 {
				e = -1
			}
			if want := fmt.Sprintf("known 0 %d %d m 0\nknown 5 -1 -1  0\n", 100+v, e); got != want {
				t.Errorf("commit v%d, fetch v%d: got\n%swant\n%s", v, f, got, want)
			}
		}
	}
}

func TestOffsetFetchOfEverything(t *testing.T) {
	r := newRig(t, Limits{})
	defer r.stop()
	r.node.create(t, "known", 3)
	c := r.pipe()
	defer c.nc.Close()
	c.do(commitRequest(5, commitPart(2, 20, 0, ""), commitPart(0, 10, 0, "")))
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version = 8
	for _, name := range []string{"g", "other"} {
		g := kmsg.NewOffsetFetchRequestGroup()
		g.Group = name
		req.Groups = append(req.Groups, g)
	}
	gs := ask[*kmsg.OffsetFetchResponse](c, req).Groups
	if len(gs) != 2 || len(gs[0].Topics) != 1 || len(gs[0].Topics[0].Partitions) != 2 || gs[0].Topics[0].Partitions[1].Offset != 20 || len(gs[1].Topics) != 0 || gs[1].ErrorCode != 0 {
		t.Errorf("%+v", gs)
	}
	req.Version = 9
	req.Groups[0].MemberID = new("m")
	if gs = ask[*kmsg.OffsetFetchResponse](c, req).Groups; gs[0].ErrorCode != 25 || gs[1].ErrorCode != 0 {
		t.Errorf("of a member: %+v", gs)
	}
}

// TestRow19Commits that are refused store nothing.
func TestRow19Commits(t *testing.T) {
	r := newRig(t, Limits{})
	defer r.stop()
	r.node.create(t, "known", 1)
	c := r.pipe()
	defer c.nc.Close()
	with := func(v int16, f func(*kmsg.OffsetCommitRequest)) *kmsg.OffsetCommitRequest {
		req := commitRequest(v, commitPart(0, 1, 0, ""))
		f(req)
		return req
	}
	for name, e := range map[string]struct {
		req  *kmsg.OffsetCommitRequest
		code int16
	}{
		"metadata of 1 MiB": {commitRequest(9, commitPart(0, 1, 0, strings.Repeat("x", 1<<15-1))), 12},
		"member":            {with(9, func(r *kmsg.OffsetCommitRequest) { r.MemberID, r.Generation = "m", 3 }), 25},
		"static member":     {with(9, func(r *kmsg.OffsetCommitRequest) { r.InstanceID = new("i") }), 25},
		"old generation":    {with(9, func(r *kmsg.OffsetCommitRequest) { r.Generation = 3 }), 22},
		"no group":          {with(9, func(r *kmsg.OffsetCommitRequest) { r.Group = "" }), 24},
	} {
		if code := ask[*kmsg.OffsetCommitResponse](c, e.req).Topics[0].Partitions[0].ErrorCode; code != e.code {
			t.Errorf("%s: code %d, want %d", name, code, e.code)
		}
	}
	if len(r.node.committed) != 0 {
		t.Errorf("stored: %v", r.node.committed)
	}
	if code := ask[*kmsg.OffsetCommitResponse](c, commitRequest(9, commitPart(0, 1, 0, strings.Repeat("x", 4096)))).Topics[0].Partitions[0].ErrorCode; code != 0 {
		t.Errorf("metadata of 4,096 bytes: code %d", code)
	}
}
