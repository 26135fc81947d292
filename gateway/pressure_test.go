package gateway

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/strandline-io/strandline/gateway/broker"
	"github.com/strandline-io/strandline/tiers/partition"
)

// TestPressureMetrics: the worst topics have series, the others are a number.
func TestPressureMetrics(t *testing.T) {
	now := time.Unix(10_000, 0)
	var lags []broker.TopicLag
	for i := range mostLagging + 3 {
		lags = append(lags, broker.TopicLag{Topic: fmt.Sprint("t", i), Lag: partition.Lag{Bytes: int64(i) + 1, Segments: 1, Oldest: now.Add(-time.Duration(i) * time.Second)}})
	}
	lags[mostLagging+2].Oldest = now.Add(time.Hour) // a file of a clock that was ahead
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(pressureMetrics(func() []broker.TopicLag { return lags }, partition.NewPool(1), func() time.Time { return now }))
	all, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		switch f.GetName() {
		case "strandline_topic_copy_lag_bytes", "strandline_topic_copy_lag_seconds":
			if n := len(f.GetMetric()); n != mostLagging {
				t.Errorf("%s has %d series", f.GetName(), n)
			}
			for _, m := range f.GetMetric() {
				if topic := m.GetLabel()[0].GetValue(); topic == "t0" || topic == "t1" || topic == "t2" || m.GetGauge().GetValue() < 0 {
					t.Errorf("%s shows %s", f.GetName(), m)
				}
			}
		}
	}
	want := `
# HELP strandline_jobs Jobs of partitions by kind (copy, remove, raise, rows) and state (running, waiting).
# TYPE strandline_jobs gauge
strandline_jobs{kind="copy",state="running"} 0
strandline_jobs{kind="copy",state="waiting"} 0
strandline_jobs{kind="remove",state="running"} 0
strandline_jobs{kind="remove",state="waiting"} 0
strandline_jobs{kind="raise",state="running"} 0
strandline_jobs{kind="raise",state="waiting"} 0
strandline_jobs{kind="rows",state="running"} 0
strandline_jobs{kind="rows",state="waiting"} 0
# HELP strandline_topics_copy_lag_unlisted Topics that lag and have no series of their own.
# TYPE strandline_topics_copy_lag_unlisted gauge
strandline_topics_copy_lag_unlisted 3
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "strandline_jobs", "strandline_topics_copy_lag_unlisted"); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}

func TestPricesAndRates(t *testing.T) {
	for _, c := range []struct {
		key, value string
		ok         bool
	}{
		{"cost.put_per_million", "0", true},
		{"cost.put_per_million", "5.25", true},
		{"cost.get_per_million", "-1", false},
		{"cost.storage_gib_month", "NaN", false},
		{"cost.egress_gib", "+Inf", false},
		{"cost.egress_gib", "cheap", false},
		{"cost.currency", "EUR", true},
		{"remote.upload_bytes_per_second", "0", true},
		{"remote.upload_bytes_per_second", "20MiB", true},
		{"remote.upload_bytes_per_second", "1023", false},
		{"remote.download_bytes_per_second", "-1", false},
		{"remote.write_requests_per_second", "100", true},
		{"remote.read_requests_per_second", "-5", false},
	} {
		_, err := Load(Sources{Flags: map[string]string{strings.NewReplacer(".", "-", "_", "-").Replace(c.key): c.value}})
		if c.ok != (err == nil) || err != nil && !strings.Contains(err.Error(), c.value) {
			t.Errorf("%s = %s: %v", c.key, c.value, err)
		}
	}
}
