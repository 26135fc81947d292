package admin

import (
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/strandline-io/strandline/gateway/admin/client"
	"github.com/strandline-io/strandline/gateway/broker"
	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/partition"
	"github.com/strandline-io/strandline/tiers/remote"
)

func about(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

// TestCostOf: every request and byte is in one line, and the lines add up.
func TestCostOf(t *testing.T) {
	a, b, idle := tiers.TopicID{1}, tiers.TopicID{2}, tiers.TopicID{3}
	now := time.Unix(100_000, 0)
	tally := remote.Tally{
		Since:   now.Add(-12 * time.Hour),
		Topics:  map[tiers.TopicID]remote.Counts{a: {Writes: 1e6, Reads: 1e6, Deletes: 7, Refused: 3, BytesUp: 9, BytesDown: 1 << 30}, b: {Writes: 4e6}},
		Deleted: remote.Counts{Reads: 2e6},
		Cluster: remote.Counts{Writes: 1e6},
	}
	stored := broker.Stored{Topics: map[tiers.TopicID]int64{a: 300 << 30}, Deleted: 30 << 30}
	prices := remote.Prices{WritesPerMillion: 5, ReadsPerMillion: 0.5, StorageGiBMonth: 0.1, EgressGiB: 2, Currency: "EUR"}
	topics := []control.Topic{{ID: idle, Name: "idle"}, {ID: b, Name: "b"}, {ID: a, Name: "a"}}
	got := costOf(tally, stored, topics, prices, now)
	if len(got.Topics) != 3 || got.Topics[0].Topic != "a" || got.Topics[1].Topic != "b" || got.Topics[2].Topic != "idle" {
		t.Fatalf("the dearest come first: %+v", got.Topics)
	}
	one := got.Topics[0]
	if !about(one.Requests, 5.5) || !about(one.Egress, 2) || !about(one.Storage, 30) || !about(*one.Projected24h, 15+1) || !about(*one.Projected30d, 480) {
		t.Errorf("%+v, a day %v, a month %v", one, *one.Projected24h, *one.Projected30d)
	}
	if one.Writes != 1e6 || one.Reads != 1e6 || one.Deletes != 7 || one.Refused != 3 || one.BytesUp != 9 || one.BytesDown != 1<<30 || one.StoredBytes != 300<<30 || one.ID != a.String() {
		t.Errorf("%+v", one)
	}
	if total := got.Total; total.Writes != 6e6 || total.Reads != 3e6 || total.StoredBytes != 330<<30 || !about(total.Requests, 31.5) || !about(total.Storage, 33) {
		t.Errorf("%+v", total)
	}
	if got.Deleted.StoredBytes != 30<<30 || got.Cluster.StoredBytes != 0 || got.Seconds != 12*3600 || got.Prices.Currency != "EUR" {
		t.Errorf("%+v", got)
	}
	tally.Since = now.Add(-59 * time.Second)
	if got = costOf(tally, stored, topics, prices, now); got.Total.Projected24h != nil || got.Topics[0].Projected30d != nil {
		t.Error("a guess from less than a minute")
	}
}

// withGate is a server of the rig's broker that has a gate.
func (r *rig) withGate(o Options) *client.Client {
	r.t.Helper()
	o.Broker = r.broker
	s := New(o)
	h := httptest.NewServer(s.Handler())
	r.t.Cleanup(func() {
		h.Close()
		if err := s.Shutdown(r.t.Context()); err != nil {
			r.t.Error(err)
		}
	})
	return client.New(h.URL, h.Client())
}

// TestLimits: what is not given stays, what makes no sense is refused and changes
// nothing.
func TestLimits(t *testing.T) {
	r := newRig(t)
	g := remote.NewGate(remote.GateOptions{Limits: remote.Limits{UploadBytes: 5000, ReadRequests: 9}})
	c := r.withGate(Options{Gate: g, Pool: partition.NewPool(2)})
	got, err := c.Limits(t.Context())
	if err != nil || got.Upload != 5000 || got.ReadRequests != 9 || got.Download != 0 || len(got.Lanes) != 3 || got.Lanes[0] != (client.Lane{Name: "writes", Places: 16, Window: 16}) || len(got.Jobs) != 4 {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err = c.ChangeLimits(t.Context(), client.LimitChanges{Download: new(int64(1 << 20)), ReadRequests: new(int64(0))}); err != nil || got.Download != 1<<20 || got.Upload != 5000 || got.ReadRequests != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	want := remote.Limits{UploadBytes: 5000, DownloadBytes: 1 << 20}
	for name, bad := range map[string]client.LimitChanges{
		"upload_bytes_per_second":   {Upload: new(int64(1023))},
		"download_bytes_per_second": {Upload: new(int64(1 << 30)), Download: new(int64(-1))},
		"write_requests_per_second": {WriteRequests: new(int64(-7))},
		"read_requests_per_second":  {ReadRequests: new(int64(-1))},
	} {
		if _, err := c.ChangeLimits(t.Context(), bad); err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "0 for no limit") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if g.Limits() != want {
		t.Errorf("limits are %+v, want %+v", g.Limits(), want)
	}
}

// TestWithoutABucket there is nothing to count or to limit.
func TestWithoutABucket(t *testing.T) {
	r := newRig(t)
	for _, call := range [][3]string{{"GET", "/v1/cost", ""}, {"GET", "/v1/limits", ""}, {"PATCH", "/v1/limits", "{}"}} {
		if a, body := r.call(call[0], call[1], call[2], "Content-Type", "application/json"); a.StatusCode != http.StatusConflict || !strings.Contains(body, "no bucket") {
			t.Errorf("%v: %d %s", call, a.StatusCode, body)
		}
	}
}

// TestCostRoute: arrays are never null (report 141).
func TestCostRoute(t *testing.T) {
	r := newRig(t)
	c := r.withGate(Options{Gate: remote.NewGate(remote.GateOptions{}), Prices: remote.Prices{Currency: "USD"}})
	got, err := c.Cost(t.Context())
	if err != nil || got.Topics == nil || got.Prices.Currency != "USD" || got.Total.Projected30d != nil {
		t.Errorf("%+v, %v", got, err)
	}
	r.create("orders")
	if got, err = c.Cost(t.Context()); err != nil || len(got.Topics) != 1 || got.Topics[0].Topic != "orders" {
		t.Errorf("%+v, %v", got, err)
	}
}
