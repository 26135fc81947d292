package broker

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/partition"
	"github.com/strandline-io/strandline/tiers/plan"
)

func settingsOf(t *testing.T, bucket bool, defaults map[string]string) *topicSettings {
	t.Helper()
	s, err := newTopicSettings(bucket, defaults)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestKafkaDefaults pins names, types and defaults to those of Kafka 4.
func TestKafkaDefaults(t *testing.T) {
	want := map[string]struct {
		kind  int8
		value string
	}{
		"cleanup.policy":                  {TypeList, "delete"},
		"compression.gzip.level":          {TypeInt, "-1"},
		"compression.lz4.level":           {TypeInt, "9"},
		"compression.type":                {TypeString, "producer"},
		"compression.zstd.level":          {TypeInt, "3"},
		"delete.retention.ms":             {TypeLong, "86400000"},
		"file.delete.delay.ms":            {TypeLong, "60000"},
		"flush.messages":                  {TypeLong, "9223372036854775807"},
		"flush.ms":                        {TypeLong, "9223372036854775807"},
		"index.interval.bytes":            {TypeInt, "4096"},
		"local.retention.bytes":           {TypeLong, "-2"},
		"local.retention.ms":              {TypeLong, "-2"},
		"max.compaction.lag.ms":           {TypeLong, "9223372036854775807"},
		"max.message.bytes":               {TypeInt, "1048588"},
		"message.timestamp.after.max.ms":  {TypeLong, "3600000"},
		"message.timestamp.before.max.ms": {TypeLong, "9223372036854775807"},
		"message.timestamp.type":          {TypeString, "CreateTime"},
		"min.cleanable.dirty.ratio":       {TypeDouble, "0.5"},
		"min.compaction.lag.ms":           {TypeLong, "0"},
		"min.insync.replicas":             {TypeInt, "1"},
		"preallocate":                     {TypeBoolean, "false"},
		"remote.log.copy.disable":         {TypeBoolean, "false"},
		"remote.log.delete.on.disable":    {TypeBoolean, "false"},
		"remote.storage.enable":           {TypeBoolean, "true"},
		"retention.bytes":                 {TypeLong, "-1"},
		"retention.ms":                    {TypeLong, "604800000"},
		"segment.bytes":                   {TypeInt, "1073741824"},
		"segment.index.bytes":             {TypeInt, "10485760"},
		"segment.jitter.ms":               {TypeLong, "0"},
		"segment.ms":                      {TypeLong, "604800000"},
		"unclean.leader.election.enable":  {TypeBoolean, "false"},

		"leader.replication.throttled.replicas":   {TypeList, ""},
		"follower.replication.throttled.replicas": {TypeList, ""},

		"strandline.ack":               {TypeString, "fsync"},
		"strandline.flush.interval.ms": {TypeLong, "1000"},
	}
	list := TopicSettings(true)
	if len(list) != len(want) {
		t.Errorf("%d settings, want %d", len(list), len(want))
	}
	for _, s := range list {
		w, ok := want[s.Name]
		if !ok || s.Type != w.kind || s.Default != w.value {
			t.Errorf("%s: type %d default %q, want %d %q", s.Name, s.Type, s.Default, w.kind, w.value)
		}
		if s.Doc == "" || s.Valid == "" {
			t.Errorf("%s is not explained", s.Name)
		}
		if v, err := s.check(s.Default); err != nil || v != s.Default {
			t.Errorf("%s: its default %q becomes %q, %v", s.Name, s.Default, v, err)
		}
		if stored := s.apply == nil && s.Valid != s.Default; stored != s.Stored || stored != strings.Contains(s.Doc, "Stored without effect.") {
			t.Errorf("%s: whether it has an effect is not told: %q", s.Name, s.Doc)
		}
	}
}

func TestSettingsReachThePartition(t *testing.T) {
	got := settingsOf(t, true, map[string]string{"segment.ms": "5000"}).config(map[string]string{
		"segment.bytes": "65536", "segment.index.bytes": "1200", "index.interval.bytes": "1",
		"max.message.bytes": "1000", "message.timestamp.type": "LogAppendTime",
		"message.timestamp.before.max.ms": "0", "message.timestamp.after.max.ms": "9223372036854775807",
		"strandline.ack": "interval", "strandline.flush.interval.ms": "20", "remote.storage.enable": "false",
	})
	var want partition.Config
	want.Local.SegmentBytes, want.Local.SegmentAge = 65536, 5*time.Second
	want.Local.IndexBytes, want.Local.IndexInterval = 1200, 1
	want.MaxMessageBytes, want.LogAppendTime = 1000, true
	want.TimestampBefore, want.TimestampAfter = time.Millisecond, 0
	want.Ack, want.FlushEvery, want.Remote = partition.AckInterval, 20*time.Millisecond, false
	seven := plan.Limits{Bytes: -1, Age: 7 * 24 * time.Hour}
	want.Retention = partition.Retention{On: true, Total: seven, Local: seven, Delay: time.Minute}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	plain := settingsOf(t, true, nil).config(nil)
	if !plain.Remote || plain.Ack != partition.AckFsync || plain.TimestampBefore != 0 || plain.TimestampAfter != time.Hour {
		t.Errorf("defaults: %+v", plain)
	}
	if settingsOf(t, false, nil).config(nil).Remote {
		t.Error("a node without a bucket copies to it")
	}
	if got := settingsOf(t, true, nil).config(map[string]string{"segment.ms": "9223372036854775807"}).Local.SegmentAge; got != math.MaxInt64 {
		t.Errorf("segment.ms for ever became %s", got)
	}
}

// TestRetentionReachesThePartition: -2 is the total limit, -1 none, and what local
// disk holds is never said to be more than the whole (KIP-405, KIP-950).
func TestRetentionReachesThePartition(t *testing.T) {
	const none = plan.Forever
	sec := time.Second
	for name, c := range map[string]struct {
		bucket   bool
		defaults map[string]string
		set      map[string]string
		want     partition.Retention
	}{
		"kept for ever": {true, nil, map[string]string{"retention.ms": "-1"}, partition.Retention{
			Total: plan.Limits{Bytes: none, Age: none}, Local: plan.Limits{Bytes: none, Age: none}, Delay: time.Minute,
		}},
		"all of them": {true, nil, map[string]string{
			"retention.ms": "9000", "retention.bytes": "900", "local.retention.ms": "1000", "local.retention.bytes": "100", "file.delete.delay.ms": "0",
		}, partition.Retention{Total: plan.Limits{Bytes: 900, Age: 9 * sec}, Local: plan.Limits{Bytes: 100, Age: sec}}},
		"nothing at all": {true, nil, map[string]string{"retention.ms": "0", "retention.bytes": "0"}, partition.Retention{
			Total: plan.Limits{}, Local: plan.Limits{}, Delay: time.Minute,
		}},
		"local for less than for ever": {true, nil, map[string]string{"retention.ms": "-1", "local.retention.ms": "0", "local.retention.bytes": "0"}, partition.Retention{
			Total: plan.Limits{Bytes: none, Age: none}, Local: plan.Limits{}, Delay: time.Minute,
		}},
		"wider where nothing is copied": {true, nil, map[string]string{
			"remote.storage.enable": "false", "retention.ms": "9000", "retention.bytes": "900", "local.retention.ms": "-1", "local.retention.bytes": "901",
		}, partition.Retention{Total: plan.Limits{Bytes: 900, Age: 9 * sec}, Local: plan.Limits{Bytes: 900, Age: 9 * sec}, Delay: time.Minute}},
		"defaults of the node": {true, map[string]string{"retention.ms": "5000", "local.retention.ms": "2000"}, map[string]string{"retention.bytes": "7"}, partition.Retention{
			Total: plan.Limits{Bytes: 7, Age: 5 * sec}, Local: plan.Limits{Bytes: 7, Age: 2 * sec}, Delay: time.Minute,
		}},
		"copies paused": {true, nil, map[string]string{"retention.ms": "-1", "remote.log.copy.disable": "true", "local.retention.ms": "10"}, partition.Retention{
			Total: plan.Limits{Bytes: none, Age: none}, Local: plan.Limits{Bytes: none, Age: 10 * time.Millisecond}, Delay: time.Minute, CopyPaused: true,
		}},
		"switched off": {true, nil, map[string]string{"retention.ms": "-1", "remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}, partition.Retention{
			Total: plan.Limits{Bytes: none, Age: none}, Local: plan.Limits{Bytes: none, Age: none}, Delay: time.Minute, ForgetRemote: true,
		}},
		"still on": {true, nil, map[string]string{"retention.ms": "-1", "remote.log.delete.on.disable": "true"}, partition.Retention{
			Total: plan.Limits{Bytes: none, Age: none}, Local: plan.Limits{Bytes: none, Age: none}, Delay: time.Minute,
		}},
		"off by a default of the node alone": {true, map[string]string{"remote.storage.enable": "false"}, map[string]string{"retention.ms": "-1", "remote.log.delete.on.disable": "true"}, partition.Retention{
			Total: plan.Limits{Bytes: none, Age: none}, Local: plan.Limits{Bytes: none, Age: none}, Delay: time.Minute,
		}},
		"the node lost its bucket": {false, nil, map[string]string{"retention.ms": "-1", "remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}, partition.Retention{
			Total: plan.Limits{Bytes: none, Age: none}, Local: plan.Limits{Bytes: none, Age: none}, Delay: time.Minute,
		}},
		"longest": {true, nil, map[string]string{"retention.ms": "9223372036854775807", "file.delete.delay.ms": "9223372036854775807"}, partition.Retention{
			Total: plan.Limits{Bytes: none, Age: math.MaxInt64}, Local: plan.Limits{Bytes: none, Age: math.MaxInt64}, Delay: math.MaxInt64,
		}},
	} {
		c.want.On = true
		if got := settingsOf(t, c.bucket, c.defaults).config(c.set).Retention; got != c.want {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, c.want)
		}
	}
}

func TestBadSettingsAreRefusedWithAReason(t *testing.T) {
	with := settingsOf(t, true, nil)
	without := settingsOf(t, false, nil)
	for name, c := range map[string]struct {
		s    *topicSettings
		set  map[string]string
		want string
	}{
		"unknown":         {with, map[string]string{"retention.mss": "1"}, `did you mean "retention.ms"?`},
		"unknown, ours":   {with, map[string]string{"strandline.acks": "os"}, `did you mean "strandline.ack"?`},
		"unknown, far":    {with, map[string]string{"zzz": "1"}, `unknown setting "zzz"`},
		"compact":         {with, map[string]string{"cleanup.policy": "compact"}, "compaction is not offered"},
		"compact,delete":  {with, map[string]string{"cleanup.policy": "compact,delete"}, "compaction is not offered"},
		"gzip":            {with, map[string]string{"compression.type": "gzip"}, "never compressed again"},
		"two replicas":    {with, map[string]string{"min.insync.replicas": "2"}, "a single node holds one copy"},
		"no bucket":       {without, map[string]string{"remote.storage.enable": "true"}, "no bucket"},
		"not a number":    {with, map[string]string{"segment.bytes": "1MiB"}, "not a whole number"},
		"below":           {with, map[string]string{"segment.bytes": "13"}, "not in range: 14 to 2147483647"},
		"no message":      {with, map[string]string{"max.message.bytes": "0"}, "not in range: 1 to 2147483647"},
		"above":           {with, map[string]string{"segment.bytes": "2147483648"}, "not in range"},
		"overflow":        {with, map[string]string{"retention.ms": "9223372036854775808"}, "not a whole number"},
		"below -1":        {with, map[string]string{"retention.ms": "-2"}, "not in range: at least -1"},
		"not a boolean":   {with, map[string]string{"preallocate": "1"}, "neither true nor false"},
		"not a choice":    {with, map[string]string{"message.timestamp.type": "createTime"}, "choose one of CreateTime, LogAppendTime"},
		"ack":             {with, map[string]string{"strandline.ack": "all"}, "choose one of fsync, interval, os"},
		"ratio":           {with, map[string]string{"min.cleanable.dirty.ratio": "1.1"}, "not a number from 0 to 1"},
		"not a ratio":     {with, map[string]string{"min.cleanable.dirty.ratio": "NaN"}, "not a number from 0 to 1"},
		"local above all": {with, map[string]string{"retention.ms": "10", "local.retention.ms": "11"}, "local.retention.ms=11 is more than retention.ms=10"},
		"local for ever":  {with, map[string]string{"local.retention.ms": "-1"}, "local.retention.ms=-1 is more than retention.ms"},
		"local bytes":     {with, map[string]string{"retention.bytes": "10", "local.retention.bytes": "11"}, "is more than retention.bytes=10"},
		"lags":            {with, map[string]string{"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"}, "is more than max.compaction.lag.ms=8"},
	} {
		_, err := c.s.check("create topic", "t", c.set)
		if tiers.KindOf(err) != tiers.InvalidConfig || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want ...%s...", name, err, c.want)
		}
	}
}

func TestValuesAreStoredInOneForm(t *testing.T) {
	got, err := settingsOf(t, true, nil).check("create topic", "t", map[string]string{
		"preallocate": " TRUE", "segment.bytes": "+0100 ", "min.cleanable.dirty.ratio": "0.50", "leader.replication.throttled.replicas": " a, ,b ",
	})
	want := map[string]string{"preallocate": "true", "segment.bytes": "100", "min.cleanable.dirty.ratio": "0.5", "leader.replication.throttled.replicas": "a,b"}
	if err != nil {
		t.Fatal(err)
	}
	for k, w := range want {
		if got[k] != w {
			t.Errorf("%s is stored as %q, want %q", k, got[k], w)
		}
	}
}

func TestAlterFollowsKafka(t *testing.T) {
	const throttled = "leader.replication.throttled.replicas"
	s := settingsOf(t, true, map[string]string{"segment.ms": "7000"})
	for name, c := range map[string]struct {
		before  map[string]string
		ops     []ConfigOp
		replace bool
		want    map[string]string
		kind    tiers.Kind // Other: it is accepted
	}{
		"set":              {map[string]string{"segment.ms": "1"}, []ConfigOp{{"segment.bytes", OpSet, new("100")}}, false, map[string]string{"segment.ms": "1", "segment.bytes": "100"}, 0},
		"set again":        {map[string]string{"segment.ms": "1"}, []ConfigOp{{"segment.ms", OpSet, new("2")}}, false, map[string]string{"segment.ms": "2"}, 0},
		"delete":           {map[string]string{"segment.ms": "1"}, []ConfigOp{{"segment.ms", OpDelete, nil}}, false, map[string]string{}, 0},
		"delete nothing":   {map[string]string{}, []ConfigOp{{"segment.ms", OpDelete, nil}}, false, map[string]string{}, 0},
		"replace":          {map[string]string{"segment.ms": "1"}, []ConfigOp{{"segment.bytes", OpSet, new("100")}}, true, map[string]string{"segment.bytes": "100"}, 0},
		"replace by none":  {map[string]string{"segment.ms": "1"}, nil, true, map[string]string{}, 0},
		"append":           {map[string]string{throttled: "a"}, []ConfigOp{{throttled, OpAppend, new("b,c")}}, false, map[string]string{throttled: "a,b,c"}, 0},
		"append a double":  {map[string]string{throttled: "a,b"}, []ConfigOp{{throttled, OpAppend, new("a")}}, false, map[string]string{throttled: "b,a"}, 0},
		"append to none":   {map[string]string{}, []ConfigOp{{throttled, OpAppend, new("a")}}, false, map[string]string{throttled: "a"}, 0},
		"append default":   {map[string]string{}, []ConfigOp{{"cleanup.policy", OpAppend, new("delete")}}, false, map[string]string{"cleanup.policy": "delete"}, 0},
		"subtract":         {map[string]string{throttled: "a,b,c"}, []ConfigOp{{throttled, OpSubtract, new("c,a")}}, false, map[string]string{throttled: "b"}, 0},
		"append number":    {map[string]string{}, []ConfigOp{{"segment.ms", OpAppend, new("1")}}, false, nil, tiers.InvalidConfig},
		"append compact":   {map[string]string{}, []ConfigOp{{"cleanup.policy", OpAppend, new("compact")}}, false, nil, tiers.InvalidConfig},
		"no value":         {map[string]string{}, []ConfigOp{{"segment.ms", OpSet, nil}}, false, nil, tiers.InvalidRequest},
		"append no value":  {map[string]string{}, []ConfigOp{{throttled, OpAppend, nil}}, false, nil, tiers.InvalidRequest},
		"unknown op":       {map[string]string{}, []ConfigOp{{"segment.ms", 4, new("1")}}, false, nil, tiers.InvalidRequest},
		"named twice":      {map[string]string{}, []ConfigOp{{"segment.ms", OpSet, new("1")}, {"segment.ms", OpDelete, nil}}, false, nil, tiers.InvalidRequest},
		"unknown":          {map[string]string{}, []ConfigOp{{"segment.mss", OpSet, new("1")}}, false, nil, tiers.InvalidConfig},
		"delete unknown":   {map[string]string{}, []ConfigOp{{"segment.mss", OpDelete, nil}}, false, nil, tiers.InvalidConfig},
		"bad together":     {map[string]string{"retention.ms": "10"}, []ConfigOp{{"local.retention.ms", OpSet, new("11")}}, false, nil, tiers.InvalidConfig},
		"remote on":        {map[string]string{"remote.storage.enable": "false"}, []ConfigOp{{"remote.storage.enable", OpSet, new("true")}}, false, map[string]string{"remote.storage.enable": "true"}, 0},
		"remote by delete": {map[string]string{"remote.storage.enable": "false"}, []ConfigOp{{"remote.storage.enable", OpDelete, nil}}, false, map[string]string{}, 0},
	} {
		got, err := s.alter(control.Topic{Name: "t", Configs: c.before}, c.ops, c.replace)
		if (err != nil) != (c.kind != tiers.Other) || tiers.KindOf(err) != c.kind {
			t.Errorf("%s: got error %v, want kind %v", name, err, c.kind)
			continue
		}
		if err == nil && !equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

func equal(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if w, ok := b[k]; !ok || v != w {
			return false
		}
	}
	return true
}

// TestReport108SwitchingOffIsAChoice between keeping and deleting what is in the
// bucket: whoever says neither is refused.
func TestReport108SwitchingOffIsAChoice(t *testing.T) {
	s := settingsOf(t, true, nil)
	const enable, forget, pause = "remote.storage.enable", "remote.log.delete.on.disable", "remote.log.copy.disable"
	off := ConfigOp{enable, OpSet, new("false")}
	for name, c := range map[string]struct {
		before map[string]string
		ops    []ConfigOp
		ok     bool
	}{
		"on by default":              {map[string]string{}, []ConfigOp{off}, false},
		"on":                         {map[string]string{enable: "true"}, []ConfigOp{off}, false},
		"paused, then off":           {map[string]string{pause: "true"}, []ConfigOp{off}, false},
		"pausing":                    {map[string]string{}, []ConfigOp{{pause, OpSet, new("true")}}, true},
		"pausing with local limits":  {map[string]string{"local.retention.ms": "1"}, []ConfigOp{{pause, OpSet, new("true")}}, true},
		"deleting":                   {map[string]string{}, []ConfigOp{off, {forget, OpSet, new("true")}}, true},
		"deleting, said before":      {map[string]string{forget: "true"}, []ConfigOp{off}, true},
		"deleting, taken back":       {map[string]string{forget: "true"}, []ConfigOp{off, {forget, OpDelete, nil}}, false},
		"off already":                {map[string]string{enable: "false"}, []ConfigOp{{forget, OpSet, new("false")}}, true},
		"off, and whatever was said": {map[string]string{enable: "false", forget: "true"}, []ConfigOp{{forget, OpDelete, nil}}, true},
	} {
		_, err := s.alter(control.Topic{Name: "t", Configs: c.before}, c.ops, false)
		if (err == nil) != c.ok || err != nil && (tiers.KindOf(err) != tiers.InvalidConfig || !errors.Is(err, errSwitchOff)) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	// On a node whose default is off, dropping the setting switches it off too. That
	// deletes nothing, whatever else the topic says: it must say so itself.
	s = settingsOf(t, true, map[string]string{enable: "false"})
	for _, before := range []map[string]string{{enable: "true"}, {enable: "true", forget: "true"}} {
		_, err := s.alter(control.Topic{Name: "t", Configs: before}, []ConfigOp{{enable, OpDelete, nil}}, false)
		if !errors.Is(err, errSwitchOff) {
			t.Errorf("dropping the setting: got %v", err)
		}
	}
}

func TestDescribeTellsSourcesAndSynonyms(t *testing.T) {
	s := settingsOf(t, true, map[string]string{"segment.bytes": "1000"})
	entries := map[string]ConfigEntry{}
	for _, e := range s.describe(map[string]string{"segment.bytes": "2000", "retention.ms": "5"}) {
		entries[e.Name] = e
	}
	check := func(name, want string, source int8, synonyms ...ConfigSynonym) {
		t.Helper()
		e := entries[name]
		if e.Value != want || e.Source != source || e.ReadOnly || e.Sensitive || len(e.Synonyms) != len(synonyms) {
			t.Errorf("%s: %+v", name, e)
			return
		}
		for i, w := range synonyms {
			if e.Synonyms[i] != w {
				t.Errorf("%s: synonym %d is %+v, want %+v", name, i, e.Synonyms[i], w)
			}
		}
	}
	check("segment.bytes", "2000", SourceTopic,
		ConfigSynonym{"segment.bytes", "2000", SourceTopic}, ConfigSynonym{"log.segment.bytes", "1000", SourceStatic}, ConfigSynonym{"log.segment.bytes", "1073741824", SourceDefault})
	check("retention.ms", "5", SourceTopic, ConfigSynonym{"retention.ms", "5", SourceTopic}, ConfigSynonym{"log.retention.ms", week, SourceDefault})
	check("strandline.ack", "fsync", SourceDefault, ConfigSynonym{"strandline.ack", "fsync", SourceDefault})
	if len(entries) != len(s.list) {
		t.Errorf("%d of %d settings are described", len(entries), len(s.list))
	}
}

func TestNodeDefaultsAreChecked(t *testing.T) {
	if err := CheckTopicDefaults(false, map[string]string{"remote.storage.enable": "true"}); tiers.KindOf(err) != tiers.InvalidConfig {
		t.Errorf("got %v", err)
	}
	if err := CheckTopicDefaults(true, map[string]string{"remote.storage.enable": "true", "segment.bytes": "16384"}); err != nil {
		t.Error(err)
	}
}

func TestTopicNames(t *testing.T) {
	for _, name := range []string{"a", "A.b_c-9", "...", strings.Repeat("x", 249), "__consumer_offsets"} {
		if err := CheckTopicName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"", ".", "..", strings.Repeat("x", 250), "a/b", "../../etc/passwd", "a\x00", "a b", "tоpic" /* a Cyrillic o */, "a\n", "a:b", "%2e%2e"} {
		if err := CheckTopicName(name); tiers.KindOf(err) != tiers.InvalidTopic {
			t.Errorf("%q: got %v", name, err)
		}
	}
}

func TestClosest(t *testing.T) {
	known := []string{"segment.bytes", "segment.ms", "retention.ms"}
	for word, want := range map[string]string{"segment.byte": "segment.bytes", "segmet.ms": "segment.ms", "x": "", "retention.minutes": "retention.ms", "": ""} {
		if got := Closest(word, known); got != want {
			t.Errorf("%q: got %q, want %q", word, got, want)
		}
	}
}

func TestPartitionDirIsReadBack(t *testing.T) {
	id := tiers.PartitionID{Topic: tiers.TopicID{0xab, 15: 1}, Index: 12}
	dir := PartitionDir("/data", id)
	if dir != "/data/ab000000000000000000000000000001-12" {
		t.Errorf("folder %s: data directories of earlier versions would not be found", dir)
	}
	if got, ok := parsePartitionDir(strings.TrimPrefix(dir, "/data/")); !ok || got != id {
		t.Errorf("read back as %v, %v", got, ok)
	}
	for _, name := range []string{"control.db", "ab000000000000000000000000000001", "ab000000000000000000000000000001-", "ab000000000000000000000000000001-01", "ab000000000000000000000000000001-1x", "ab000000000000000000000000000001--1", "topic-1"} {
		if id, ok := parsePartitionDir(name); ok {
			t.Errorf("%s is taken for %v", name, id)
		}
	}
}
