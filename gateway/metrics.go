package gateway

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/strandline-io/strandline/gateway/broker"
)

// health is a collector of what the broker says of itself when it is asked.
type health struct {
	broker                                                    *broker.Broker
	build, partitions, topics, fenced, claimed, behind, stamp *prometheus.Desc
	version                                                   string
}

func healthMetrics(b *broker.Broker, version string) prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("strandline_"+name, help, labels, nil)
	}
	return &health{
		broker:     b,
		version:    version,
		build:      desc("build_info", "Always 1, with the version of the program.", "version"),
		topics:     desc("topics", "Topics."),
		partitions: desc("partitions", "Partitions by state: online, opening, offline.", "state"),
		fenced:     desc("fenced", "1 once this node has lost its claim on the bucket."),
		claimed:    desc("claim_checked_timestamp_seconds", "When the claim on the bucket was last read and this node's, in seconds since 1970."),
		behind:     desc("journal_behind", "1 while a change of topics is not in the bucket yet."),
		stamp:      desc("meta_snapshot_timestamp_seconds", "When the control plane was last written to the bucket, in seconds since 1970."),
	}
}

// Describe sends the descriptions.
func (h *health) Describe(c chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{h.build, h.partitions, h.topics, h.fenced, h.claimed, h.behind, h.stamp} {
		c <- d
	}
}

// Collect asks the broker.
func (h *health) Collect(c chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	flag := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	now := h.broker.Health()
	gauge(h.build, 1, h.version)
	gauge(h.topics, float64(len(h.broker.Catalog().Topics())))
	gauge(h.partitions, float64(now.Partitions-now.Opening-len(now.Offline)), "online")
	gauge(h.partitions, float64(now.Opening), "opening")
	gauge(h.partitions, float64(len(now.Offline)), "offline")
	gauge(h.fenced, flag(now.Fenced != nil))
	gauge(h.behind, flag(now.Publishing != nil))
	if !now.ClaimAt.IsZero() {
		gauge(h.claimed, float64(now.ClaimAt.UnixMilli())/1000)
	}
	if !now.SnapshotAt.IsZero() {
		gauge(h.stamp, float64(now.SnapshotAt.UnixMilli())/1000)
	}
}
