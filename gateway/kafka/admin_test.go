package kafka

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/gateway/broker"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/partition"
)

func metadataOf(v int16, names ...string) *kmsg.MetadataRequest {
	r := kmsg.NewPtrMetadataRequest()
	r.Version, r.Topics = v, []kmsg.MetadataRequestTopic{}
	for _, n := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = new(n)
		r.Topics = append(r.Topics, t)
	}
	return r
}

// TestMetadataAllOrNone: empty means all in v0, none later; null means all.
func TestMetadataAllOrNone(t *testing.T) {
	r := newRig(t, Limits{})
	defer r.stop()
	r.node.create(t, "a", 1)
	r.node.create(t, "b", 2)
	c := r.pipe()
	defer c.nc.Close()
	for v := int16(0); v <= 12; v++ {
		n := len(ask[*kmsg.MetadataResponse](c, metadataOf(v)).Topics)
		if want := map[bool]int{true: 2, false: 0}[v == 0]; n != want {
			t.Errorf("v%d empty: %d topics, want %d", v, n, want)
		}
		if v > 0 {
			all := kmsg.NewPtrMetadataRequest()
			all.Version = v
			if n := len(ask[*kmsg.MetadataResponse](c, all).Topics); n != 2 {
				t.Errorf("v%d null: %d topics, want 2", v, n)
			}
		}
	}
}

func TestMetadata(t *testing.T) {
	r := newRig(t, Limits{})
	defer r.stop()
	known := r.node.create(t, "known", 2)
	c := r.pipe()
	defer c.nc.Close()

	resp := ask[*kmsg.MetadataResponse](c, metadataOf(12, "known"))
	if *resp.ClusterID != "strandline-test-clustr" || resp.ControllerID != 1 || len(resp.Brokers) != 1 || resp.Brokers[0].Host != "localhost" ||
		resp.Brokers[0].Port != 9092 || *resp.Brokers[0].Rack != "rack-a" {
		t.Errorf("cluster: %+v", resp)
	}
	rt := resp.Topics[0]
	if rt.TopicID != known.ID || len(rt.Partitions) != 2 || rt.Partitions[1].Leader != 1 || fmt.Sprint(rt.Partitions[1].ISR) != "[1]" || rt.ErrorCode != 0 {
		t.Errorf("topic: %+v", rt)
	}
	if ops := rt.AuthorizedOperations; ops != -2147483648 {
		t.Errorf("authorized operations, not asked for: %d", ops)
	}
	req := metadataOf(9, "known")
	req.IncludeTopicAuthorizedOperations, req.IncludeClusterAuthorizedOperations = true, true
	resp = ask[*kmsg.MetadataResponse](c, req)
	if resp.Topics[0].AuthorizedOperations != 3576 || resp.AuthorizedOperations != 8096 {
		t.Errorf("authorized operations: %d and %d", resp.Topics[0].AuthorizedOperations, resp.AuthorizedOperations)
	}

	r.node.offline[tiers.TopicPartition{Topic: "known", Partition: 0}] = tiers.E(tiers.StorageFailed, "owner", "known-0", "the disk failed")
	r.node.offline[tiers.TopicPartition{Topic: "known", Partition: 1}] = tiers.E(tiers.NotLeader, "owner", "known-1", "it is opening")
	ps := ask[*kmsg.MetadataResponse](c, metadataOf(12, "known")).Topics[0].Partitions
	if ps[0].ErrorCode != 5 || ps[0].Leader != -1 || fmt.Sprint(ps[0].OfflineReplicas) != "[1]" {
		t.Errorf("offline: %+v", ps[0])
	}
	if ps[1].ErrorCode != 0 || ps[1].Leader != 1 {
		t.Errorf("opening: %+v", ps[1])
	}
}

// TestMetadataCreatesTopics only where client and node allow it, and never under
// names that are not legal (T10, row 14).
func TestMetadataCreatesTopics(t *testing.T) {
	r := newRig(t, Limits{})
	defer r.stop()
	c := r.pipe()
	defer c.nc.Close()
	for _, name := range []string{"../../etc/passwd", "..", ".", "", strings.Repeat("x", 250), "a\x00b", "tοpic"} {
		for _, v := range []int16{1, 12} {
			if code := ask[*kmsg.MetadataResponse](c, metadataOf(v, name)).Topics[0].ErrorCode; code != 17 {
				t.Errorf("v%d %q: code %d, want INVALID_TOPIC_EXCEPTION", v, name, code)
			}
		}
	}
	req := metadataOf(4, "new")
	if code := ask[*kmsg.MetadataResponse](c, req).Topics[0].ErrorCode; code != 3 {
		t.Errorf("the client does not allow it: code %d", code)
	}
	r.node.autoOff = true
	req.AllowAutoTopicCreation = true
	if code := ask[*kmsg.MetadataResponse](c, req).Topics[0].ErrorCode; code != 3 {
		t.Errorf("the node does not allow it: code %d", code)
	}
	if len(r.node.topics) != 0 {
		t.Errorf("topics: %v", r.node.topics)
	}
	r.node.autoOff = false
	if rt := ask[*kmsg.MetadataResponse](c, req).Topics[0]; rt.ErrorCode != 0 || len(rt.Partitions) != 1 {
		t.Errorf("both allow it: %+v", rt)
	}
	if rt := ask[*kmsg.MetadataResponse](c, metadataOf(1, "old-client")).Topics[0]; rt.ErrorCode != 0 || len(rt.Partitions) != 1 {
		t.Errorf("clients before v4 always do: %+v", rt)
	}
}

func TestMetadataByID(t *testing.T) {
	r := newRig(t, Limits{})
	defer r.stop()
	known := r.node.create(t, "known", 1)
	c := r.pipe()
	defer c.nc.Close()
	req := metadataOf(12)
	for _, id := range []tiers.TopicID{known.ID, {99}, {}} {
		rt := kmsg.NewMetadataRequestTopic()
		rt.TopicID = id
		req.Topics = append(req.Topics, rt)
	}
	ts := ask[*kmsg.MetadataResponse](c, req).Topics
	if ts[0].ErrorCode != 0 || *ts[0].Topic != "known" || ts[1].ErrorCode != 100 || ts[1].Topic != nil || ts[2].ErrorCode != 100 {
		t.Errorf("%+v", ts)
	}
}

// TestTransactionsAreRefusedForGood: with a code that no client tries again.
func TestTransactionsAreRefusedForGood(t *testing.T) {
	r := newRig(t, Limits{})
	defer r.stop()
	c := r.pipe()
	defer c.nc.Close()
	for v := int16(1); v <= 6; v++ {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.Version, req.CoordinatorType, req.CoordinatorKey, req.CoordinatorKeys = v, 1, "tx", []string{"tx"}
		resp := ask[*kmsg.FindCoordinatorResponse](c, req)
		code, msg := resp.ErrorCode, resp.ErrorMessage
		if v >= 4 {
			code, msg = resp.Coordinators[0].ErrorCode, resp.Coordinators[0].ErrorMessage
		}
		if code != 53 || !strings.Contains(*msg, "not supported") {
			t.Errorf("FindCoordinator v%d: code %d, %q", v, code, *msg)
		}
	}
	for v := int16(0); v <= 4; v++ {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.Version, req.TransactionalID = v, new("tx")
		if resp := ask[*kmsg.InitProducerIDResponse](c, req); resp.ErrorCode != 53 || resp.ProducerID != -1 {
			t.Errorf("InitProducerId v%d: %+v", v, resp)
		}
		req.TransactionalID = new("")
		if resp := ask[*kmsg.InitProducerIDResponse](c, req); resp.ErrorCode != 42 {
			t.Errorf("InitProducerId v%d of an empty id: %+v", v, resp)
		}
	}
}

func TestInitProducerIDGivesANewOneEachTime(t *testing.T) {
	r := newRig(t, Limits{})
	defer r.stop()
	c := r.pipe()
	defer c.nc.Close()
	seen := map[int64]bool{}
	for v := int16(0); v <= 4; v++ {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.Version, req.ProducerID, req.ProducerEpoch = v, 1, 7
		resp := ask[*kmsg.InitProducerIDResponse](c, req)
		if resp.ErrorCode != 0 || seen[resp.ProducerID] || resp.ProducerEpoch != 0 {
			t.Errorf("v%d: %+v", v, resp)
		}
		seen[resp.ProducerID] = true
	}
}

func TestOffsetForLeaderEpoch(t *testing.T) {
	r := newRig(t, Limits{})
	defer r.stop()
	r.node.create(t, "known", 1)
	log := r.node.log(t, "known", 0)
	log.fill(t, 9, 10)
	log.change(func(v *partition.View) {
		v.Epoch, v.Lineage = 5, tiers.Lineage{{Epoch: 2, Start: 0}, {Epoch: 5, Start: 6}}
	})
	c := r.pipe()
	defer c.nc.Close()
	for v := int16(2); v <= 4; v++ {
		for _, e := range []struct {
			current, asked, replica, epoch int32
			end                            int64
			code                           int16
		}{
			{-1, 2, -1, 2, 6, 0}, {5, 4, -1, 2, 6, 0}, {5, 5, -1, 5, 9, 0}, {5, 7, -2, -1, -1, 0}, {4, 2, -1, -1, -1, 74}, {-1, 2, 3, -1, -1, 31},
		} {
			if v < 3 && e.replica == 3 {
				continue
			}
			req := kmsg.NewPtrOffsetForLeaderEpochRequest()
			req.Version, req.ReplicaID = v, e.replica
			rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
			rt.Topic = "known"
			rp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			rp.CurrentLeaderEpoch, rp.LeaderEpoch = e.current, e.asked
			rt.Partitions = append(rt.Partitions, rp)
			req.Topics = append(req.Topics, rt)
			p := ask[*kmsg.OffsetForLeaderEpochResponse](c, req).Topics[0].Partitions[0]
			if p.ErrorCode != e.code || p.LeaderEpoch != e.epoch || p.EndOffset != e.end {
				t.Errorf("v%d %+v: %+v", v, e, p)
			}
		}
	}
}

func TestCreateAndDeleteTopics(t *testing.T) {
	r := newRig(t, Limits{})
	defer r.stop()
	c := r.pipe()
	defer c.nc.Close()
	topic := func(name string, n int32, rf int16) kmsg.CreateTopicsRequestTopic {
		rt := kmsg.NewCreateTopicsRequestTopic()
		rt.Topic, rt.NumPartitions, rt.ReplicationFactor = name, n, rf
		return rt
	}
	assigned := func(name string, n int32, parts ...int32) kmsg.CreateTopicsRequestTopic {
		rt := topic(name, n, int16(n))
		for _, p := range parts {
			a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
			a.Partition, a.Replicas = p, []int32{1}
			rt.ReplicaAssignment = append(rt.ReplicaAssignment, a)
		}
		return rt
	}
	set := topic("twice-set", 1, 1)
	for range 2 {
		cfg := kmsg.NewCreateTopicsRequestTopicConfig()
		cfg.Name, cfg.Value = "retention.ms", new("1")
		set.Configs = append(set.Configs, cfg)
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version = 7
	req.Topics = []kmsg.CreateTopicsRequestTopic{
		topic("a", 3, 1), topic("a/b", 1, 1), topic("twice", 1, 1), topic("twice", 1, 1), topic("none", 0, 1),
		assigned("both", 2, 0, 1), assigned("assigned", -1, 0, 1), assigned("assigned-twice", -1, 0, 0), set, topic("default", -1, -1),
	}
	req.ValidateOnly = true
	codes := func() (out []int16) {
		for _, rt := range ask[*kmsg.CreateTopicsResponse](c, req).Topics {
			out = append(out, rt.ErrorCode)
			if (rt.ErrorCode != 0) != (rt.ErrorMessage != nil) {
				t.Errorf("%s: code %d, message %v", rt.Topic, rt.ErrorCode, rt.ErrorMessage)
			}
		}
		return out
	}
	want := []int16{0, 17, 42, 42, 37, 42, 0, 39, 40, 0}
	if got := codes(); !slices.Equal(got, want) || len(r.node.topics) != 0 {
		t.Errorf("checked only: %v, want %v; topics %v", got, want, r.node.topics)
	}
	req.ValidateOnly = false
	if got := codes(); !slices.Equal(got, want) || len(r.node.topics) != 3 {
		t.Errorf("made: %v, want %v; %d topics", got, want, len(r.node.topics))
	}
	want[0], want[6], want[9] = 36, 36, 36
	if got := codes(); !slices.Equal(got, want) {
		t.Errorf("again: %v, want %v", got, want)
	}

	req.Topics = []kmsg.CreateTopicsRequestTopic{topic("b", 2, 1)}
	made := ask[*kmsg.CreateTopicsResponse](c, req).Topics[0]
	if made.NumPartitions != 2 || made.ReplicationFactor != 1 || made.TopicID == [16]byte{} || len(made.Configs) != 2 {
		t.Errorf("as made: %+v", made)
	}

	del := kmsg.NewPtrDeleteTopicsRequest()
	del.Version = 5
	del.TopicNames = []string{"a", "a", "unknown"}
	var got []int16
	for _, rt := range ask[*kmsg.DeleteTopicsResponse](c, del).Topics {
		got = append(got, rt.ErrorCode)
	}
	if !slices.Equal(got, []int16{0, 3, 3}) {
		t.Errorf("deleted: %v", got)
	}
	del.Version = 6
	for _, id := range []tiers.TopicID{made.TopicID, {99}, {}} {
		rt := kmsg.NewDeleteTopicsRequestTopic()
		rt.TopicID = id
		del.Topics = append(del.Topics, rt)
	}
	both := kmsg.NewDeleteTopicsRequestTopic()
	both.Topic, both.TopicID = new("default"), made.TopicID
	del.Topics = append(del.Topics, both)
	ts := ask[*kmsg.DeleteTopicsResponse](c, del).Topics
	if ts[0].ErrorCode != 0 || *ts[0].Topic != "b" || ts[1].ErrorCode != 100 || ts[2].ErrorCode != 100 || ts[3].ErrorCode != 42 {
		t.Errorf("by id: %+v", ts)
	}
}

func TestCreatePartitions(t *testing.T) {
	r := newRig(t, Limits{})
	defer r.stop()
	r.node.create(t, "known", 2)
	c := r.pipe()
	defer c.nc.Close()
	with := func(topic string, n int32, replicas ...int32) kmsg.CreatePartitionsRequestTopic {
		rt := kmsg.NewCreatePartitionsRequestTopic()
		rt.Topic, rt.Count = topic, n
		for _, rep := range replicas {
			a := kmsg.NewCreatePartitionsRequestTopicAssignment()
			a.Replicas = []int32{rep}
			rt.Assignment = append(rt.Assignment, a)
		}
		return rt
	}
	for i, e := range []struct {
		topic kmsg.CreatePartitionsRequestTopic
		code  int16
		check bool
	}{
		{with("known", 2), 37, false},
		{with("unknown", 3), 3, false},
		{with("unknown", 3, 1), 3, false},
		{with("known", 4, 1), 39, false},
		{with("known", 4, 1, 2), 39, false},
		{with("known", 4), 0, true},
		{with("known", 3, 1), 0, false},
		{with("known", 4), 0, false},
	} {
		req := kmsg.NewPtrCreatePartitionsRequest()
		req.Version, req.ValidateOnly, req.Topics = 3, e.check, []kmsg.CreatePartitionsRequestTopic{e.topic}
		if rt := ask[*kmsg.CreatePartitionsResponse](c, req).Topics[0]; rt.ErrorCode != e.code || (e.code != 0) != (rt.ErrorMessage != nil) {
			t.Errorf("%d: %+v, want code %d", i, rt, e.code)
		}
	}
	if now, _ := r.node.Topic("known"); len(now.Partitions) != 4 {
		t.Errorf("%d partitions", len(now.Partitions))
	}
}

func TestDescribeConfigs(t *testing.T) {
	r := newRig(t, Limits{})
	defer r.stop()
	r.node.create(t, "known", 1)
	c := r.pipe()
	defer c.nc.Close()
	describe := func(v int16, kind kmsg.ConfigResourceType, name string, names ...string) kmsg.DescribeConfigsResponseResource {
		req := kmsg.NewPtrDescribeConfigsRequest()
		req.Version = v
		res := kmsg.NewDescribeConfigsRequestResource()
		res.ResourceType, res.ResourceName, res.ConfigNames = kind, name, names
		req.Resources = append(req.Resources, res)
		return ask[*kmsg.DescribeConfigsResponse](c, req).Resources[0]
	}
	for _, v := range []int16{0, 4} {
		all := describe(v, 2, "known")
		if len(all.Configs) != 2 || all.Configs[0].IsDefault != (v == 0) || v == 0 && all.Configs[1].IsDefault || *all.Configs[1].Value != "1000000" {
			t.Errorf("v%d: %+v", v, all)
		}
		if v == 4 && (all.Configs[1].Source != 1 || all.Configs[0].ConfigType != 5) {
			t.Errorf("v4: %+v", all.Configs)
		}
	}
	if one := describe(4, 2, "known", "segment.bytes", "nothing"); len(one.Configs) != 1 || one.Configs[0].Name != "segment.bytes" {
		t.Errorf("by name: %+v", one)
	}
	node := describe(4, 4, "1")
	if len(node.Configs) != 1 || node.Configs[0].Value != nil || !node.Configs[0].ReadOnly || !node.Configs[0].IsSensitive {
		t.Errorf("of the node: %+v: a secret must not be shown", node)
	}
	for name, e := range map[string]struct {
		kind kmsg.ConfigResourceType
		name string
		code int16
	}{"unknown topic": {2, "unknown", 3}, "another node": {4, "2", 42}, "nonsense node": {4, "x", 42}, "group": {32, "g", 42}} {
		if got := describe(4, e.kind, e.name); got.ErrorCode != e.code || got.ErrorMessage == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestAlterConfigs(t *testing.T) {
	r := newRig(t, Limits{})
	defer r.stop()
	r.node.create(t, "known", 1)
	c := r.pipe()
	defer c.nc.Close()

	res := kmsg.NewAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = 2, "known"
	for name, v := range map[string]*string{"retention.ms": new("7"), "segment.bytes": nil} {
		cfg := kmsg.NewAlterConfigsRequestResourceConfig()
		cfg.Name, cfg.Value = name, v
		res.Configs = append(res.Configs, cfg)
	}
	req := kmsg.NewPtrAlterConfigsRequest()
	req.Resources = append(req.Resources, res)
	if got := ask[*kmsg.AlterConfigsResponse](c, req).Resources[0]; got.ErrorCode != 0 {
		t.Errorf("%+v", got)
	}
	if !r.node.replaced || len(r.node.altered) != 1 || r.node.altered[0].Name != "retention.ms" || *r.node.altered[0].Value != "7" {
		t.Errorf("altered %+v, replaced %v", r.node.altered, r.node.replaced)
	}

	inc := kmsg.NewPtrIncrementalAlterConfigsRequest()
	add := func(kind kmsg.ConfigResourceType, topic string, ops ...broker.ConfigOp) {
		ir := kmsg.NewIncrementalAlterConfigsRequestResource()
		ir.ResourceType, ir.ResourceName = kind, topic
		for _, op := range ops {
			cfg := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
			cfg.Name, cfg.Op, cfg.Value = op.Name, kmsg.IncrementalAlterConfigOp(op.Op), op.Value
			ir.Configs = append(ir.Configs, cfg)
		}
		inc.Resources = append(inc.Resources, ir)
	}
	add(2, "known", broker.ConfigOp{Name: "retention.ms", Op: 1}, broker.ConfigOp{Name: "cleanup.policy", Op: 2, Value: new("compact")})
	add(2, "known", broker.ConfigOp{Name: "retention.ms", Op: 1})
	add(2, "unknown", broker.ConfigOp{Name: "retention.ms", Op: 1})
	add(2, "other", broker.ConfigOp{Name: "retention.ms", Op: 4})
	add(2, "another", broker.ConfigOp{Name: "retention.ms"}, broker.ConfigOp{Name: "retention.ms"})
	add(4, "1", broker.ConfigOp{Name: "num.io.threads"})
	add(8, "1", broker.ConfigOp{Name: "level"})
	var got []int16
	for _, ir := range ask[*kmsg.IncrementalAlterConfigsResponse](c, inc).Resources {
		got = append(got, ir.ErrorCode)
	}
	if want := []int16{0, 42, 3, 42, 42, 42, 42}; !slices.Equal(got, want) {
		t.Errorf("codes %v, want %v", got, want)
	}
	if r.node.replaced || len(r.node.altered) != 2 || r.node.altered[0].Op != 1 || r.node.altered[1].Op != 2 {
		t.Errorf("altered %+v, replaced %v", r.node.altered, r.node.replaced)
	}
}

func TestDescribeCluster(t *testing.T) {
	r := newRig(t, Limits{})
	defer r.stop()
	c := r.pipe()
	defer c.nc.Close()
	for kind, code := range map[int8]int16{1: 0, 2: 114, 3: 115} {
		req := kmsg.NewPtrDescribeClusterRequest()
		req.Version, req.EndpointType = 1, kind
		resp := ask[*kmsg.DescribeClusterResponse](c, req)
		if resp.ErrorCode != code || resp.ClusterID != "strandline-test-clustr" || (len(resp.Brokers) == 1) != (code == 0) {
			t.Errorf("endpoint type %d: %+v", kind, resp)
		}
	}
}
