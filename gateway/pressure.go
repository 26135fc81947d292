package gateway

import (
	"cmp"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/strandline-io/strandline/gateway/broker"
	"github.com/strandline-io/strandline/tiers/partition"
)

// mostLagging bounds the topics that have series of their own: a scrape shows the
// worst.
const mostLagging = 200

// pressure is a collector of how far copies are behind and what waits for workers.
type pressure struct {
	lags                             func() []broker.TopicLag
	pool                             *partition.Pool // nil: no figures of jobs
	now                              func() time.Time
	lagBytes, lagSeconds, rest, jobs *prometheus.Desc
}

func pressureMetrics(lags func() []broker.TopicLag, pool *partition.Pool, now func() time.Time) prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("strandline_"+name, help, labels, nil)
	}
	return &pressure{
		lags:       lags,
		pool:       pool,
		now:        now,
		lagBytes:   desc("topic_copy_lag_bytes", "Bytes of closed segments of a topic that are not in the bucket. Topics without any are left out, and so are all but the 200 worst.", "topic"),
		lagSeconds: desc("topic_copy_lag_seconds", "Age of the oldest closed segment of a topic that is not in the bucket.", "topic"),
		rest:       desc("topics_copy_lag_unlisted", "Topics that lag and have no series of their own."),
		jobs:       desc("jobs", "Jobs of partitions by kind (copy, remove, raise, rows) and state (running, waiting).", "kind", "state"),
	}
}

// Describe sends the descriptions.
func (p *pressure) Describe(c chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{p.lagBytes, p.lagSeconds, p.rest, p.jobs} {
		c <- d
	}
}

// Collect asks the broker and the pool.
func (p *pressure) Collect(c chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	lags := p.lags()
	slices.SortFunc(lags, func(a, b broker.TopicLag) int { return cmp.Compare(b.Bytes, a.Bytes) })
	listed := lags[:min(len(lags), mostLagging)]
	now := p.now()
	for _, l := range listed {
		gauge(p.lagBytes, float64(l.Bytes), l.Topic)
		gauge(p.lagSeconds, max(0, now.Sub(l.Oldest).Seconds()), l.Topic)
	}
	gauge(p.rest, float64(len(lags)-len(listed)))
	if p.pool == nil {
		return
	}
	for _, j := range p.pool.Jobs() {
		gauge(p.jobs, float64(j.Running), j.Kind, "running")
		gauge(p.jobs, float64(j.Waiting), j.Kind, "waiting")
	}
}
