package kafka

import (
	"fmt"
	"net"
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/tiers"
)

// samples are requests for every API, with something known, something unknown
// and something wrong in each.
func samples(tb testing.TB, key, v int16, known tiers.TopicID) []kmsg.Request {
	tb.Helper()
	out := []kmsg.Request{}
	add := func(r kmsg.Request) { r.SetVersion(v); out = append(out, r) }
	switch key {
	case 0:
		for _, name := range []string{"known", "unknown"} {
			add(produceOf(-1, name, 0, makeBatch(tb, 2, 10)))
		}
		add(produceOf(1, "known", 0, nil))
		add(produceOf(7, "known", 0, makeBatch(tb, 1, 1)))
	case 1:
		for _, w := range []wanted{
			{name: "known", id: known, offset: 0},
			{name: "known", id: known, offset: 2},
			{name: "known", id: known, offset: 99},
			{name: "known", id: known, offset: -5},
			{name: "known", id: known, index: 77},
			{name: "unknown", id: tiers.TopicID{99}},
		} {
			r := fetchOf(v, w)
			r.MaxWaitMillis = 1
			add(r)
			committed := fetchOf(v, w)
			committed.MaxWaitMillis, committed.IsolationLevel = 1, 1
			add(committed)
		}
	case 2:
		for _, ts := range []int64{-1, -2, -3, -4, -5, -6, -7, 500, 5000} {
			r := kmsg.NewPtrListOffsetsRequest()
			r.ReplicaID = -1
			for _, name := range []string{"known", "unknown"} {
				rt := kmsg.NewListOffsetsRequestTopic()
				rt.Topic = name
				rp := kmsg.NewListOffsetsRequestTopicPartition()
				rp.Timestamp, rp.MaxNumOffsets = ts, 2
				rt.Partitions = append(rt.Partitions, rp)
				r.Topics = append(r.Topics, rt)
			}
			add(r)
		}
	case 3:
		add(kmsg.NewPtrMetadataRequest())
		r := kmsg.NewPtrMetadataRequest()
		for _, name := range []string{"known", "unknown", "not legal", "made-new"} {
			rt := kmsg.NewMetadataRequestTopic()
			rt.Topic = new(name)
			r.Topics = append(r.Topics, rt)
		}
		r.IncludeClusterAuthorizedOperations, r.IncludeTopicAuthorizedOperations = true, true
		add(r)
		if v >= 12 {
			r := kmsg.NewPtrMetadataRequest()
			for _, id := range []tiers.TopicID{known, {55}, {}} {
				rt := kmsg.NewMetadataRequestTopic()
				rt.TopicID = id
				r.Topics = append(r.Topics, rt)
			}
			add(r)
		}
	case 8:
		for _, member := range []string{"", "member"} {
			r := kmsg.NewPtrOffsetCommitRequest()
			r.Group, r.MemberID, r.Generation = "g", member, -1
			for _, name := range []string{"known", "unknown"} {
				rt := kmsg.NewOffsetCommitRequestTopic()
				rt.Topic = name
				rp := kmsg.NewOffsetCommitRequestTopicPartition()
				rp.Offset, rp.Metadata = 1, new("m")
				rt.Partitions = append(rt.Partitions, rp)
				r.Topics = append(r.Topics, rt)
			}
			add(r)
		}
	case 9:
		for _, group := range []string{"g", "unknown", ""} {
			r := kmsg.NewPtrOffsetFetchRequest()
			r.Group = group
			rt := kmsg.NewOffsetFetchRequestTopic()
			rt.Topic, rt.Partitions = "known", []int32{0, 5}
			r.Topics = append(r.Topics, rt)
			rg := kmsg.NewOffsetFetchRequestGroup()
			rg.Group = group
			gt := kmsg.NewOffsetFetchRequestGroupTopic()
			gt.Topic, gt.Partitions = "known", []int32{0, 5}
			rg.Topics = append(rg.Topics, gt)
			r.Groups = append(r.Groups, rg)
			add(r)
			if v >= 2 {
				all := kmsg.NewPtrOffsetFetchRequest()
				all.Group = group
				allg := kmsg.NewOffsetFetchRequestGroup()
				allg.Group = group
				all.Groups = append(all.Groups, allg)
				add(all)
			}
		}
	case 10:
		for _, kind := range []int8{0, 1, 2} {
			r := kmsg.NewPtrFindCoordinatorRequest()
			r.CoordinatorKey, r.CoordinatorType, r.CoordinatorKeys = "g", kind, []string{"g", "h", ""}
			add(r)
		}
	case 18:
		r := kmsg.NewPtrApiVersionsRequest()
		r.ClientSoftwareName, r.ClientSoftwareVersion = "strandline-test", "1.0"
		add(r)
		add(kmsg.NewPtrApiVersionsRequest())
	case 19:
		for _, check := range []bool{true, false} {
			r := kmsg.NewPtrCreateTopicsRequest()
			r.ValidateOnly = check
			for _, name := range []string{fmt.Sprint("new-", v), "known", "..", "twice", "twice"} {
				rt := kmsg.NewCreateTopicsRequestTopic()
				rt.Topic, rt.NumPartitions, rt.ReplicationFactor = name, 1, 1
				r.Topics = append(r.Topics, rt)
			}
			add(r)
		}
	case 20:
		r := kmsg.NewPtrDeleteTopicsRequest()
		r.TopicNames = []string{"unknown"}
		for _, id := range []tiers.TopicID{{}, {77}} {
			rt := kmsg.NewDeleteTopicsRequestTopic()
			rt.Topic, rt.TopicID = new("unknown"), id
			r.Topics = append(r.Topics, rt)
		}
		rt := kmsg.NewDeleteTopicsRequestTopic()
		rt.TopicID = tiers.TopicID{78}
		r.Topics = append(r.Topics, rt)
		add(r)
	case 21:
		r := kmsg.NewPtrDeleteRecordsRequest()
		for _, name := range []string{"known", "unknown"} {
			rt := kmsg.NewDeleteRecordsRequestTopic()
			rt.Topic = name
			for i, offset := range []int64{1, -1, 99} {
				rp := kmsg.NewDeleteRecordsRequestTopicPartition()
				rp.Partition, rp.Offset = int32(i), offset
				rt.Partitions = append(rt.Partitions, rp)
			}
			r.Topics = append(r.Topics, rt)
		}
		add(r)
		add(kmsg.NewPtrDeleteRecordsRequest())
	case 22:
		for _, id := range []*string{nil, new(""), new("tx")} {
			r := kmsg.NewPtrInitProducerIDRequest()
			r.TransactionalID = id
			add(r)
		}
	case 23:
		r := kmsg.NewPtrOffsetForLeaderEpochRequest()
		r.ReplicaID = -1
		for _, name := range []string{"known", "unknown"} {
			rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
			rt.Topic = name
			for _, e := range []int32{0, 9} {
				rp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
				rp.LeaderEpoch = e
				rt.Partitions = append(rt.Partitions, rp)
			}
			r.Topics = append(r.Topics, rt)
		}
		add(r)
	case 32:
		r := kmsg.NewPtrDescribeConfigsRequest()
		r.IncludeSynonyms, r.IncludeDocumentation = true, true
		for _, res := range []resource{{2, "known"}, {2, "unknown"}, {4, "1"}, {4, ""}, {4, "9"}, {8, "1"}} {
			rr := kmsg.NewDescribeConfigsRequestResource()
			rr.ResourceType, rr.ResourceName = res.kind, res.name
			r.Resources = append(r.Resources, rr)
		}
		add(r)
	case 33:
		r := kmsg.NewPtrAlterConfigsRequest()
		for _, res := range []resource{{2, "known"}, {2, "known"}, {4, "1"}, {2, "unknown"}} {
			rr := kmsg.NewAlterConfigsRequestResource()
			rr.ResourceType, rr.ResourceName = res.kind, res.name
			rc := kmsg.NewAlterConfigsRequestResourceConfig()
			rc.Name, rc.Value = "retention.ms", new("1")
			rr.Configs = append(rr.Configs, rc)
			r.Resources = append(r.Resources, rr)
		}
		add(r)
	case 37:
		r := kmsg.NewPtrCreatePartitionsRequest()
		r.ValidateOnly = true
		for _, name := range []string{"known", "unknown"} {
			rt := kmsg.NewCreatePartitionsRequestTopic()
			rt.Topic, rt.Count = name, 5
			r.Topics = append(r.Topics, rt)
		}
		add(r)
	case 44:
		r := kmsg.NewPtrIncrementalAlterConfigsRequest()
		for _, op := range []int8{0, 1, 2, 3, 4} {
			rr := kmsg.NewIncrementalAlterConfigsRequestResource()
			rr.ResourceType, rr.ResourceName = 2, "known"
			rc := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
			rc.Name, rc.Op, rc.Value = "retention.ms", kmsg.IncrementalAlterConfigOp(op), new("1")
			rr.Configs = append(rr.Configs, rc)
			r.Resources = append(r.Resources, rr)
		}
		add(r)
	case 60:
		for _, kind := range []int8{1, 2, 3} {
			r := kmsg.NewPtrDescribeClusterRequest()
			r.EndpointType, r.IncludeClusterAuthorizedOperations = kind, true
			add(r)
		}
	default:
		tb.Fatalf("no sample for API %d", key)
	}
	return out
}

// produceOf asks for one batch to be written.
func produceOf(acks int16, topic string, index int32, b []byte) *kmsg.ProduceRequest {
	r := kmsg.NewPtrProduceRequest()
	r.Version, r.Acks, r.TimeoutMillis = 9, acks, 1000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = index, b
	rt.Partitions = append(rt.Partitions, rp)
	r.Topics = append(r.Topics, rt)
	return r
}

// fetchOf asks for partitions, without a session.
func fetchOf(v int16, ws ...wanted) *kmsg.FetchRequest {
	r := kmsg.NewPtrFetchRequest()
	r.Version, r.MaxWaitMillis, r.MinBytes, r.MaxBytes, r.SessionEpoch = v, 500, 1, 1<<20, -1
	r.ReplicaID = -1
	for _, w := range ws {
		rt := kmsg.NewFetchRequestTopic()
		rt.Topic, rt.TopicID = w.name, w.id
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = w.index, int64(w.offset), 1<<20
		if w.maxBytes != 0 {
			rp.PartitionMaxBytes = int32(w.maxBytes)
		}
		rp.CurrentLeaderEpoch, rp.LastFetchedEpoch = -1, -1
		if w.current != 0 {
			rp.CurrentLeaderEpoch = int32(w.current)
		}
		if w.fetched != 0 {
			rp.LastFetchedEpoch = int32(w.fetched)
		}
		rt.Partitions = append(rt.Partitions, rp)
		r.Topics = append(r.Topics, rt)
	}
	return r
}

// TestReport065EveryAdvertisedVersionIsAnswered asks every API in every version
// that is advertised.
func TestReport065EveryAdvertisedVersionIsAnswered(t *testing.T) {
	for _, a := range apis() {
		for v := a.min; v <= a.max; v++ {
			t.Run(fmt.Sprintf("%s/v%d", apiName(a.key), v), func(t *testing.T) {
				r := newRig(t, Limits{})
				defer r.stop()
				topic := r.node.create(t, "known", 1)
				r.node.log(t, "known", 0).fill(t, 2, 10)
				c := r.tcp()
				defer c.nc.Close()
				for _, req := range samples(t, a.key, v, topic.ID) {
					c.do(req)
				}
			})
		}
	}
}

// TestT3NoListIsNull walks the responses before they are encoded, since kmsg
// writes a nil slice as null where the protocol allows it, at which Java clients
// die. It cannot be seen in all responses once they are decoded again.
func TestT3NoListIsNull(t *testing.T) {
	for _, a := range apis() {
		if a.key == keyFetch {
			continue // has an encoder of its own: TestT3FetchNulls
		}
		for v := a.min; v <= a.max; v++ {
			r := newRig(t, Limits{})
			topic := r.node.create(t, "known", 1)
			r.node.log(t, "known", 0).fill(t, 2, 10)
			here, there := net.Pipe()
			c := r.srv.newConn(there, r.at)
			for _, req := range samples(t, a.key, v, topic.ID) {
				ans := a.serve(r.srv, &call{ctx: t.Context(), gone: t.Context(), conn: c, version: v, req: req})
				if null := nilIn(reflect.ValueOf(ans.resp).Elem(), ans.resp, ""); null != "" {
					t.Errorf("%s v%d: %s is null", apiName(a.key), v, null)
				}
			}
			_, _ = here.Close(), there.Close()
			r.stop()
		}
	}
}

// TestT3FetchNulls: read_uncommitted has no list of aborted transactions, which
// is null; read_committed always has one. Records are never null.
func TestT3FetchNulls(t *testing.T) {
	r := newRig(t, Limits{})
	defer r.stop()
	topic := r.node.create(t, "known", 1)
	c := r.pipe()
	defer c.nc.Close()
	for v := int16(4); v <= 17; v++ {
		for level := range int8(2) {
			for _, index := range []int32{0, 9} {
				req := fetchOf(v, wanted{name: "known", id: topic.ID, index: index})
				req.IsolationLevel, req.MaxWaitMillis = level, 0
				p := ask[*kmsg.FetchResponse](c, req).Topics[0].Partitions[0]
				if (p.AbortedTransactions == nil) != (level == 0) || p.RecordBatches == nil {
					t.Errorf("v%d level %d index %d: aborted %v, records %v", v, level, index, p.AbortedTransactions, p.RecordBatches)
				}
			}
		}
	}
}

// nilIn finds a nil slice in v: the path to it, "" if there is none.
func nilIn(v reflect.Value, resp kmsg.Response, path string) string {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			if name == "UnknownTags" || absent(resp, path+"."+name) {
				continue
			}
			if p := nilIn(v.Field(i), resp, path+"."+name); p != "" {
				return p
			}
		}
	case reflect.Slice:
		if v.IsNil() {
			return path
		}
		for i := range v.Len() {
			if p := nilIn(v.Index(i), resp, path); p != "" {
				return p
			}
		}
	case reflect.Pointer:
		if !v.IsNil() {
			return nilIn(v.Elem(), resp, path)
		}
	default:
	}
	return ""
}

// absent says which lists are not in a version's encoding at all, or are tagged
// fields, which are left out when empty.
func absent(resp kmsg.Response, path string) bool {
	v := resp.GetVersion()
	switch fmt.Sprint(resp.Key(), path) {
	case "0.Topics.Partitions.ErrorRecords":
		return v < 8
	case "0.Brokers", "18.SupportedFeatures", "18.FinalizedFeatures":
		return true
	case "2.Topics.Partitions.OldStyleOffsets":
		return v != 0
	case "3.Topics.Partitions.OfflineReplicas":
		return v < 5
	case "9.Topics":
		return v >= 8
	case "9.Groups":
		return v < 8
	case "10.Coordinators":
		return v < 4
	case "19.Topics.Configs":
		return v < 5
	case "32.Resources.Configs.ConfigSynonyms":
		return v < 1
	}
	return false
}

// TestT1ProduceIsAdvertisedFromZero: librdkafka before 2.11.1 sends everything
// uncompressed if it is not.
func TestT1ProduceIsAdvertisedFromZero(t *testing.T) {
	r := newRig(t, Limits{})
	defer r.stop()
	r.node.create(t, "known", 1)
	c := r.pipe()
	defer c.nc.Close()
	req := kmsg.NewPtrApiVersionsRequest()
	resp := ask[*kmsg.ApiVersionsResponse](c, req)
	for _, k := range resp.ApiKeys {
		if k.ApiKey == keyProduce && k.MinVersion != 0 {
			t.Fatalf("Produce is advertised from %d", k.MinVersion)
		}
	}
	for v := range int16(3) {
		p := produceOf(1, "known", 0, makeBatch(t, 1, 1))
		p.Version = v
		if code := ask[*kmsg.ProduceResponse](c, p).Topics[0].Partitions[0].ErrorCode; code != 43 {
			t.Errorf("Produce v%d: code %d, want UNSUPPORTED_FOR_MESSAGE_FORMAT (43)", v, code)
		}
	}
	if n := len(r.node.log(t, "known", 0).appended); n != 0 {
		t.Errorf("%d batches were appended", n)
	}
}

// TestT5OnlyWhatIsServedIsAdvertised: no API without a range, none that later
// issues bring, and old clients find a version of the first ones that they need.
func TestT5OnlyWhatIsServedIsAdvertised(t *testing.T) {
	r := newRig(t, Limits{})
	defer r.stop()
	c := r.pipe()
	defer c.nc.Close()
	got := map[int16][2]int16{}
	for _, k := range ask[*kmsg.ApiVersionsResponse](c, kmsg.NewPtrApiVersionsRequest()).ApiKeys {
		if k.MinVersion < 0 || k.MaxVersion < k.MinVersion {
			t.Errorf("API %d has range %d-%d", k.ApiKey, k.MinVersion, k.MaxVersion)
		}
		got[k.ApiKey] = [2]int16{k.MinVersion, k.MaxVersion}
	}
	want := map[int16][2]int16{
		0: {0, 11}, 1: {4, 17}, 2: {0, 11}, 3: {0, 12}, 8: {0, 9}, 9: {0, 9}, 10: {0, 6}, 18: {0, 4}, 19: {0, 7}, 20: {0, 6},
		21: {0, 2}, 22: {0, 4}, 23: {2, 4}, 32: {0, 4}, 33: {0, 2}, 37: {0, 3}, 44: {0, 1}, 60: {0, 1},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("advertised %v, want %v", got, want)
	}
}

// TestT7UnknownKeyOrVersionCloses: never a foreign body.
func TestT7UnknownKeyOrVersionCloses(t *testing.T) {
	r := newRig(t, Limits{})
	defer r.stop()
	for _, kv := range [][2]int16{{11, 5}, {1, 3}, {1, 18}, {0, 12}, {-1, 0}, {999, 0}, {2, -1}, {26, 1}} {
		c := r.pipe()
		b := []byte{0, 0, 0, 14, byte(kv[0] >> 8), byte(kv[0]), byte(kv[1] >> 8), byte(kv[1]), 0, 0, 0, 1, 0xff, 0xff, 0, 0, 0, 0}
		go func() { _, _ = c.nc.Write(b) }() // the server may close before it took everything
		c.closed()
	}
}

func TestT7UnknownApiVersionsVersionIsAnsweredWithV0(t *testing.T) {
	r := newRig(t, Limits{})
	defer r.stop()
	c := r.pipe()
	defer c.nc.Close()
	for _, v := range []int16{5, 99, 32767, -1} {
		b := []byte{0, 0, 0, 10, 0, 18, byte(v >> 8), byte(v), 0, 0, 0, 7, 0xff, 0xff}
		if _, err := c.nc.Write(b); err != nil {
			t.Fatal(err)
		}
		corr, body, err := c.raw()
		if err != nil || corr != 7 {
			t.Fatalf("v%d: correlation id %d, error %v", v, corr, err)
		}
		resp := kmsg.NewPtrApiVersionsResponse()
		if err := resp.ReadFrom(body); err != nil {
			t.Fatalf("v%d: not a v0 body: %v", v, err)
		}
		if resp.ErrorCode != 35 || len(resp.ApiKeys) != 1 || resp.ApiKeys[0].ApiKey != 18 || resp.ApiKeys[0].MaxVersion != 4 {
			t.Errorf("v%d: %+v", v, resp)
		}
	}
	ask[*kmsg.ApiVersionsResponse](c, kmsg.NewPtrApiVersionsRequest()) // the connection goes on
}

func TestApiVersionsChecksTheSoftwareName(t *testing.T) {
	r := newRig(t, Limits{})
	defer r.stop()
	c := r.pipe()
	defer c.nc.Close()
	for name, code := range map[string]int16{
		"librdkafka": 0, "apache-kafka.java": 0, "a": 0, "": 42, "-a": 42, "a.": 42, "a b": 42, "ünder": 42,
	} {
		req := kmsg.NewPtrApiVersionsRequest()
		req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = 3, name, "1.0"
		if got := ask[*kmsg.ApiVersionsResponse](c, req).ErrorCode; got != code {
			t.Errorf("%q: code %d, want %d", name, got, code)
		}
	}
}

// TestEveryKindHasACode: the table is whole, and only Other is UNKNOWN_SERVER_ERROR.
func TestEveryKindHasACode(t *testing.T) {
	n := 0
	for k := tiers.Kind(0); k.String() != fmt.Sprintf("kind(%d)", uint8(k)); k++ {
		code, ok := codeOfKind(k)
		if !ok {
			t.Errorf("kind %q has no code", k)
		}
		if (code == codeUnknown) != (k == tiers.Other) {
			t.Errorf("kind %q has code %d", k, code)
		}
		if codeName(code) == "NONE" {
			t.Errorf("kind %q has code %d, which Kafka does not know", k, code)
		}
		n++
	}
	if n < 30 {
		t.Fatalf("only %d kinds were seen", n)
	}
	if _, ok := codeOfKind(tiers.Kind(n)); ok {
		t.Error("a kind that does not exist has a code")
	}
}
