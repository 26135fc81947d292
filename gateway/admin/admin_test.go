package admin

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/strandline-io/strandline/gateway/admin/client"
	"github.com/strandline-io/strandline/gateway/broker"
	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/gateway/control/model"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/batch"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/fsys/mem"
	"github.com/strandline-io/strandline/tiers/local"
	"github.com/strandline-io/strandline/tiers/partition"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

// rig is an interface over a broker in memory.
type rig struct {
	t       *testing.T
	broker  *broker.Broker
	bucket  *memory.Bucket
	disk    *fsys.Faulty
	server  *Server
	http    *httptest.Server
	client  *client.Client
	unready string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	ctx := t.Context()
	r := &rig{t: t, bucket: memory.New(), disk: fsys.NewFaulty(mem.New())}
	store := model.New(model.Options{})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	disk, err := local.OpenDisk(r.disk, "/data", hclog.NewNullLogger())
	must(err)
	cluster, err := store.Cluster(ctx)
	must(err)
	claim, err := control.AcquireClaim(ctx, r.bucket, control.ClaimOptions{Cluster: cluster, Node: 1, Instance: uuid.NewString(), Now: time.Now})
	must(err)
	session, err := store.OpenSession(ctx, 1)
	must(err)
	journal := control.NewJournal(r.bucket, store, claim, hclog.NewNullLogger())
	must(journal.Snapshot(ctx))
	cache := remote.NewCache(r.bucket, remote.CacheOptions{})
	r.broker, err = broker.Open(ctx, broker.Options{
		Node: broker.Node{ID: 1, Cluster: cluster, Rack: "r1"}, Session: session, Store: store, FS: r.disk, DataDir: "/data", Disk: disk,
		Scheduler: partition.NewPool(2), Journal: journal, Claim: claim, Cache: cache,
	})
	must(err)
	reg := prometheus.NewRegistry()
	reg.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "strandline_test", Help: "Of this test."}))
	r.server = New(Options{
		Listen: "127.0.0.1:0", Broker: r.broker, Gatherer: reg, Version: "v", Kafka: func() []string { return []string{"127.0.0.1:9092"} },
		Bucket: "memory:", Config: []client.ConfigKey{{Key: "node.id", Value: "1", Source: "default"}},
		Unready: func() string { return r.unready },
	})
	r.http = httptest.NewServer(r.server.Handler())
	r.client = client.New(r.http.URL, r.http.Client())
	t.Cleanup(func() {
		end := context.WithoutCancel(ctx)
		r.http.Close()
		if err := r.server.Shutdown(end); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if err := r.broker.Close(end); err != nil {
			t.Logf("close: %v", err)
		}
		cache.Close()
		if err := disk.Close(); err != nil {
			t.Logf("close disk: %v", err)
		}
	})
	return r
}

// answer is the head of an answer.
type answer struct {
	StatusCode int
	Header     http.Header
}

// call sends a request as it is and returns the answer.
func (r *rig) call(method, path, body string, header ...string) (answer, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.http.URL, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.URL.Opaque = path // as written, whatever is in it
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
			continue
		}
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := r.http.Client().Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header}, string(raw)
}

func (r *rig) create(name string) {
	r.t.Helper()
	if _, err := r.client.CreateTopic(r.t.Context(), client.NewTopic{Name: name}); err != nil {
		r.t.Fatal(err)
	}
}

// append writes n records to orders-0.
func (r *rig) append(n int) {
	r.t.Helper()
	o, err := r.broker.Owner("orders", 0)
	if err != nil {
		r.t.Fatal(err)
	}
	for range n {
		b, err := batch.Builder{ProducerID: -1}.Build([]batch.Record{{Timestamp: time.Now().UnixMilli(), Value: []byte("v")}})
		if err != nil {
			r.t.Fatal(err)
		}
		if _, err := o.Append(r.t.Context(), partition.AppendRequest{Batch: b}); err != nil {
			r.t.Fatal(err)
		}
	}
}

// wantProblem checks that an error is a problem.
func wantProblem(t *testing.T, what string, err error, status int, words ...string) {
	t.Helper()
	var p *client.Problem
	if !errors.As(err, &p) || p.Status != status || p.Kind == "" || p.Title == "" {
		t.Errorf("%s: got %#v, want status %d", what, err, status)
		return
	}
	for _, w := range words {
		if !strings.Contains(p.Detail, w) {
			t.Errorf("%s: %q does not say %q", what, p.Detail, w)
		}
	}
}

func TestTopicsThroughTheClient(t *testing.T) {
	r := newRig(t)
	c, ctx := r.client, t.Context()
	two, one := int32(2), int16(1)
	made, err := c.CreateTopic(ctx, client.NewTopic{Name: "orders", Partitions: &two, Replication: &one, Configs: map[string]string{"segment.bytes": "5000"}})
	if err != nil || made.ID == "" || made.Partitions != 2 || made.Configs["segment.bytes"] != "5000" || made.CreatedAt.IsZero() {
		t.Fatalf("create: %+v, %v", made, err)
	}
	checked, err := c.CreateTopic(ctx, client.NewTopic{Name: "other", CheckOnly: true})
	if err != nil || checked.ID != "" || checked.Partitions != 1 {
		t.Errorf("check only: %+v, %v", checked, err)
	}
	list, err := c.Topics(ctx)
	if err != nil || len(list) != 1 || list[0].Name != "orders" || list[0].ID != made.ID {
		t.Errorf("list: %+v, %v", list, err)
	}
	r.append(3)
	detail, err := c.Topic(ctx, "orders")
	if err != nil || len(detail.Detail) != 2 || detail.Detail[0].LogEnd != 3 || detail.Detail[0].LocalBytes == 0 || detail.Detail[0].State != "online" || detail.Detail[1].LogEnd != 0 {
		t.Errorf("describe: %+v, %v", detail, err)
	}
	if err = c.AlterConfigs(ctx, "orders", map[string]*string{"segment.bytes": nil, "retention.ms": new("7")}); err != nil {
		t.Error(err)
	}
	configs, err := c.Configs(ctx, "orders")
	got := map[string]client.ConfigEntry{}
	for _, e := range configs {
		got[e.Name] = e
	}
	if err != nil || got["retention.ms"].Value != "7" || got["retention.ms"].Source != "topic" || got["retention.ms"].Default != "604800000" ||
		got["segment.bytes"].Source != "default" || got["segment.bytes"].Doc == "" {
		t.Errorf("configs: %+v, %v", got, err)
	}
	if err = c.DeleteTopic(ctx, "orders"); err != nil {
		t.Error(err)
	}
	_, err = c.Topic(ctx, "orders")
	wantProblem(t, "describe after delete", err, http.StatusNotFound, "orders")
}

func TestRollCopyAndSegments(t *testing.T) {
	r := newRig(t)
	c, ctx := r.client, t.Context()
	r.create("orders")
	r.append(3)
	if err := c.Roll(ctx, "orders", 0); err != nil {
		t.Fatal(err)
	}
	r.append(2)
	if err := c.Copy(ctx, "orders", 0, true); err != nil {
		t.Fatal(err)
	}
	segs, err := c.Segments(ctx, "orders", 0)
	if err != nil || len(segs) != 2 {
		t.Fatalf("segments: %+v, %v", segs, err)
	}
	if s := segs[0]; s.Base != 0 || s.Next != 3 || s.Tier != "both" || !strings.HasPrefix(s.Key, "topics/") || len(s.Epochs) != 1 || s.Bytes == 0 {
		t.Errorf("first: %+v", s)
	}
	if s := segs[1]; s.Base != 3 || s.Next != 5 || s.Tier != "local" || s.State != "active" {
		t.Errorf("second: %+v", s)
	}
	detail, err := c.Topic(ctx, "orders")
	if p := detail.Detail[0]; err != nil || p.RemoteSegments != 1 || p.LocalSegments != 2 || p.RemoteEnd != 3 || p.RemoteBytes != segs[0].Bytes || p.LocalBytes != segs[0].Bytes+segs[1].Bytes {
		t.Errorf("tiers: %+v, %v", p, err)
	}
}

func TestCopyInTheBackground(t *testing.T) {
	r := newRig(t)
	r.create("orders")
	r.append(3)
	hold, reached := make(chan struct{}), make(chan memory.Call, 1)
	r.bucket.Add(memory.Fault{Ops: memory.OpPut, Key: "topics/", Hold: hold, Reached: reached})
	if err := r.client.Roll(t.Context(), "orders", 0); err != nil {
		t.Fatal(err)
	}
	if err := r.client.Copy(t.Context(), "orders", 0, false); err != nil {
		t.Fatal(err)
	}
	<-reached // the answer did not wait for the bucket
	close(hold)
	if err := r.client.Copy(t.Context(), "orders", 0, true); err != nil {
		t.Fatal(err)
	}
	if keys := r.bucket.Keys("topics/"); len(keys) != 2 {
		t.Errorf("keys %v", keys)
	}
}

func TestMistakesAreProblems(t *testing.T) {
	r := newRig(t)
	c, ctx := r.client, t.Context()
	r.create("orders")
	_, err := c.CreateTopic(ctx, client.NewTopic{Name: "orders"})
	wantProblem(t, "create again", err, http.StatusConflict, "orders")
	_, err = c.CreateTopic(ctx, client.NewTopic{Name: "a b"})
	wantProblem(t, "bad name", err, http.StatusBadRequest, "letters")
	_, err = c.CreateTopic(ctx, client.NewTopic{Name: "t", Partitions: new(int32(0))})
	wantProblem(t, "no partitions", err, http.StatusBadRequest, "choose 1 to")
	_, err = c.CreateTopic(ctx, client.NewTopic{Name: "t", Replication: new(int16(3))})
	wantProblem(t, "three copies", err, http.StatusBadRequest, "one copy")
	wantProblem(t, "delete nothing", c.DeleteTopic(ctx, "other"), http.StatusNotFound)
	wantProblem(t, "unknown setting", c.AlterConfigs(ctx, "orders", map[string]*string{"segment.byte": new("1")}), http.StatusBadRequest, `did you mean "segment.bytes"?`)
	_, err = c.Segments(ctx, "orders", 1)
	wantProblem(t, "no partition", err, http.StatusNotFound)
	_, err = c.Segments(ctx, "orders", -1)
	wantProblem(t, "partition -1", err, http.StatusBadRequest, "-1")
	wantProblem(t, "copy nothing", c.Copy(ctx, "other", 0, true), http.StatusNotFound)
}

// TestHostileRequests is row 25 of the list of bad inputs, and its relatives.
func TestHostileRequests(t *testing.T) {
	r := newRig(t)
	r.create("orders")
	big := `{"name":"` + strings.Repeat("x", maxBody) + `"}`
	for name, c := range map[string]struct {
		method, path, body string
		header             []string
		status             int
	}{
		"cross-origin post":      {"POST", "/v1/topics", `{"name":"x"}`, []string{"Sec-Fetch-Site", "cross-site"}, 403},
		"cross-origin by origin": {"DELETE", "/v1/topics/orders", "", []string{"Origin", "http://evil.example"}, 403},
		"rebound host name":      {"GET", "/v1/topics", "", []string{"Host", "evil.example"}, 403},
		"1 MiB body":             {"POST", "/v1/topics", big, nil, 413},
		"gzip body":              {"POST", "/v1/topics", `{"name":"x"}`, []string{"Content-Encoding", "gzip"}, 415},
		"form body":              {"POST", "/v1/topics", `{"name":"x"}`, []string{"Content-Type", "text/plain"}, 415},
		"dotted path":            {"GET", "/v1/topics/%2e%2e", "", nil, 400},
		"dotted path, plain":     {"GET", "/v1/topics/../config", "", nil, 400},
		"slash in a name":        {"GET", "/v1/topics/a%2fb", "", nil, 400},
		"empty part":             {"GET", "/v1//topics", "", nil, 400},
		"not JSON":               {"POST", "/v1/topics", "{", nil, 400},
		"unknown member":         {"POST", "/v1/topics", `{"name":"x","nome":"y"}`, nil, 400},
		"two values":             {"POST", "/v1/topics", `{"name":"x"} {}`, nil, 400},
		"no body":                {"POST", "/v1/topics", "", []string{"Content-Type", "application/json"}, 400},
		"number as a setting":    {"PATCH", "/v1/topics/orders/configs", `{"segment.bytes":5}`, nil, 400},
		"unknown path":           {"GET", "/v2", "", nil, 404},
		"root":                   {"GET", "/", "", nil, 404},
		"wrong method":           {"PUT", "/v1/topics", "{}", nil, 405},
		"partition is a word":    {"GET", "/v1/topics/orders/partitions/x/segments", "", nil, 400},
		"partition overflows":    {"GET", "/v1/topics/orders/partitions/4294967296/segments", "", nil, 400},
	} {
		resp, body := r.call(c.method, c.path, c.body, c.header...)
		var p client.Problem
		if err := json.Unmarshal([]byte(body), &p); err != nil || resp.StatusCode != c.status || p.Status != c.status || p.Detail == "" || p.Kind == "" ||
			resp.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %s %q, want a problem with %d", name, resp.StatusCode, resp.Header.Get("Content-Type"), body, c.status)
		}
		if c.status == 405 && resp.Header.Get("Allow") == "" {
			t.Errorf("%s: no Allow header", name)
		}
	}
	if topics := r.broker.Catalog().Topics(); len(topics) != 1 {
		t.Errorf("something was created or deleted: %+v", topics)
	}
	for _, host := range []string{"localhost:1", "127.0.0.1", "[::1]:80", "[::1]"} {
		if resp, body := r.call("GET", "/v1/topics", "", "Host", host); resp.StatusCode != http.StatusOK {
			t.Errorf("host %s: %d %s", host, resp.StatusCode, body)
		}
	}
}

// TestReport141NoArrayIsNull looks at every answer with a list on an empty node
// and on one with an empty topic.
func TestReport141NoArrayIsNull(t *testing.T) {
	r := newRig(t)
	paths := []string{"/livez", "/readyz", "/startupz", "/v1/cluster", "/v1/config", "/v1/topics"}
	r.server.o.Config, r.server.o.Kafka = nil, func() []string { return nil }
	check := func() {
		t.Helper()
		for _, p := range paths {
			resp, body := r.call("GET", p, "")
			if resp.StatusCode != http.StatusOK || strings.Contains(body, "null") || !json.Valid([]byte(body)) {
				t.Errorf("%s: %d %s", p, resp.StatusCode, body)
			}
		}
	}
	check()
	r.create("orders")
	paths = append(paths, "/v1/topics/orders", "/v1/topics/orders/configs", "/v1/topics/orders/partitions/0/segments")
	check()
}

func TestHealth(t *testing.T) {
	r := newRig(t)
	ready := func() client.Health {
		t.Helper()
		h, err := r.client.Ready(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	if h := ready(); h.Status != "ok" || len(h.Reasons) != 0 {
		t.Errorf("at first: %+v", h)
	}
	r.unready = "the node is stopping"
	if h := ready(); h.Status != "unavailable" || len(h.Reasons) != 1 || h.Reasons[0] != r.unready {
		t.Errorf("stopping: %+v", h)
	}
	if resp, _ := r.call("GET", "/readyz", ""); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("stopping: status %d", resp.StatusCode)
	}
	r.unready = ""
	r.broker.Fence(tiers.E(tiers.StaleFence, "check claim", "bucket", "node 2 took it over"))
	if h := ready(); h.Status != "unavailable" || len(h.Reasons) != 1 || !strings.Contains(h.Reasons[0], "node 2 took it over") {
		t.Errorf("fenced: %+v", h)
	}
	for path, want := range map[string]int{"/livez": 200, "/startupz": 200} {
		if resp, body := r.call("GET", path, ""); resp.StatusCode != want {
			t.Errorf("%s of a fenced node: %d %s", path, resp.StatusCode, body)
		}
	}
	if err := r.client.DeleteTopic(t.Context(), "x"); err == nil {
		t.Error("no error")
	}
	_, err := r.client.CreateTopic(t.Context(), client.NewTopic{Name: "x"})
	wantProblem(t, "create on a fenced node", err, http.StatusServiceUnavailable, "node 2 took it over")
}

// TestOfflinePartitionIsAWarning: one broken folder must not take a node's
// clients away, and the admin interface tells the reason (report 021).
func TestOfflinePartitionIsAWarning(t *testing.T) {
	r := newRig(t)
	r.create("good")
	r.disk.Add(fsys.Fault{Kinds: fsys.OpOpen, Sticky: true, Err: errors.New("bad sector")})
	r.create("bad")
	h, err := r.client.Ready(t.Context())
	if err != nil || h.Status != "ok" || len(h.Warnings) != 1 || !strings.Contains(h.Warnings[0], "bad sector") {
		t.Errorf("ready: %+v, %v", h, err)
	}
	d, err := r.client.Topic(t.Context(), "bad")
	if err != nil || d.Detail[0].State != "offline" || !strings.Contains(d.Detail[0].Reason, "bad sector") {
		t.Errorf("describe: %+v, %v", d, err)
	}
	c, err := r.client.Cluster(t.Context())
	if err != nil || len(c.Offline) != 1 || c.Partitions != 2 || c.Topics != 2 {
		t.Errorf("cluster: %+v, %v", c, err)
	}
	_, err = r.client.Segments(t.Context(), "bad", 0)
	wantProblem(t, "segments", err, http.StatusServiceUnavailable, "bad sector")
}

// TestClaimThatCannotBeReadIsAWarning: it proves nothing, so clients stay.
func TestClaimThatCannotBeReadIsAWarning(t *testing.T) {
	h := broker.Health{Unclaimed: errors.New("three misses"), Publishing: errors.New("behind"), Offline: []string{"orders-0"}}
	if got := warnings(h); !slices.Equal(got, []string{"behind", "three misses", "orders-0"}) {
		t.Errorf("got %q", got)
	}
}

func TestMetricsAndConfig(t *testing.T) {
	r := newRig(t)
	resp, body := r.call("GET", "/metrics", "")
	if resp.StatusCode != http.StatusOK || !strings.Contains(body, "strandline_test 0") {
		t.Errorf("metrics: %d %s", resp.StatusCode, body)
	}
	c, err := r.client.Config(t.Context())
	if err != nil || len(c) != 1 || c[0] != (client.ConfigKey{Key: "node.id", Value: "1", Source: "default"}) {
		t.Errorf("config: %+v, %v", c, err)
	}
}

func TestEveryKindHasAStatus(t *testing.T) {
	for k := tiers.Kind(0); !strings.HasPrefix(k.String(), "kind("); k++ {
		if s, ok := statuses()[k]; !ok || s < 400 || http.StatusText(s) == "" {
			t.Errorf("%v has status %d", k, s)
		}
	}
}

func TestServerListensAndShutsDown(t *testing.T) {
	r := newRig(t)
	if err := r.server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := client.New(r.server.Addr(), r.http.Client())
	if _, err := c.Cluster(t.Context()); err != nil {
		t.Error(err)
	}
	second := New(Options{Listen: r.server.Addr(), Broker: r.broker, Gatherer: prometheus.NewRegistry()})
	err := second.Start(t.Context())
	if err == nil || !strings.Contains(err.Error(), "change admin.listen") {
		t.Errorf("the port is taken: %v", err)
	}
	if err := r.server.Shutdown(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
	if _, err := c.Cluster(t.Context()); err == nil || !strings.Contains(err.Error(), "is it running") {
		t.Errorf("after the end: %v", err)
	}
}

func TestClientOfSomethingElse(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/v1/topics" {
			w.WriteHeader(http.StatusBadGateway)
		}
		_, _ = w.Write([]byte("<html>"))
	}))
	defer other.Close()
	c := client.New(other.URL+"/", other.Client())
	if _, err := c.Cluster(t.Context()); err == nil || !strings.Contains(err.Error(), "the admin address of a node?") {
		t.Errorf("not JSON: %v", err)
	}
	_, err := c.Topics(t.Context())
	if p := (*client.Problem)(nil); !errors.As(err, &p) || p.Status != http.StatusBadGateway || !strings.Contains(err.Error(), "502") {
		t.Errorf("not a problem: %v", err)
	}
}
