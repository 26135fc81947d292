package gateway

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/strandline-io/strandline/gateway/broker"
)

// health is a collector of what the broker says of itself when it is asked.
type health struct {
	broker                                                     *broker.Broker
	build, partitions, topics, fenced, claimed, behind, stamp  *prometheus.Desc
	free, full, up, stalled, orphans, sweptOff, foreign, swept *prometheus.Desc
	version                                                    string
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
		partitions: desc("partitions", "Partitions by state: online, read-only, opening, offline.", "state"),
		fenced:     desc("fenced", "1 once this node has lost its claim on the bucket."),
		claimed:    desc("claim_checked_timestamp_seconds", "When the claim on the bucket was last read and this node's, in seconds since 1970."),
		behind:     desc("journal_behind", "1 while a change of topics is not in the bucket yet."),
		free:       desc("disk_free_bytes", "Free bytes of the data directory's disk."),
		full:       desc("disk_full", "1 while the disk has no room for records: its partitions are read-only."),
		up:         desc("bucket_up", "1 if the bucket answered when it was asked last. Else the series with the reason (denied, no-bucket, throttled, unavailable, other) is 0.", "reason"),
		stalled:    desc("copies_failing", "Partitions whose copies to the bucket have failed for two minutes or more."),
		orphans:    desc("sweep_found_total", "Objects that sweeps found and no row names."),
		sweptOff:   desc("sweep_deleted_total", "Objects that sweeps deleted."),
		foreign:    desc("sweep_foreign_objects", "Objects below our prefix that are not ours, as of the last sweep."),
		swept:      desc("sweep_complete", "1 if the last sweep was complete, 0 if it was not."),
		stamp:      desc("meta_snapshot_timestamp_seconds", "When the control plane was last written to the bucket, in seconds since 1970."),
	}
}

// Describe sends the descriptions.
func (h *health) Describe(c chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{h.build, h.partitions, h.topics, h.fenced, h.claimed, h.behind, h.stamp, h.free, h.full, h.up, h.stalled, h.orphans, h.sweptOff, h.foreign, h.swept} {
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
	online, readOnly := float64(now.Partitions-now.Opening-len(now.Offline)), 0.0
	if now.Full != nil {
		online, readOnly = 0, online
	}
	gauge(h.partitions, online, "online")
	gauge(h.partitions, readOnly, "read-only")
	gauge(h.partitions, float64(now.Opening), "opening")
	gauge(h.partitions, float64(len(now.Offline)), "offline")
	gauge(h.fenced, flag(now.Fenced != nil))
	gauge(h.behind, flag(now.Publishing != nil))
	if now.Disk.Total > 0 {
		gauge(h.free, float64(now.Disk.Free))
	}
	gauge(h.full, flag(now.Full != nil))
	if now.HasBucket {
		h.bucket(c, now, gauge, flag)
	}
	if !now.ClaimAt.IsZero() {
		gauge(h.claimed, float64(now.ClaimAt.UnixMilli())/1000)
	}
	if !now.SnapshotAt.IsZero() {
		gauge(h.stamp, float64(now.SnapshotAt.UnixMilli())/1000)
	}
}

// bucket is what there is to say with a bucket. While it answers there is one
// series of bucket_up, without a reason; else one with the reason.
func (h *health) bucket(c chan<- prometheus.Metric, now broker.Health, gauge func(*prometheus.Desc, float64, ...string), flag func(bool) float64) {
	gauge(h.up, flag(now.Bucket == nil), now.BucketReason())
	gauge(h.stalled, float64(now.Stalled))
	t := h.broker.SweepTotals()
	c <- prometheus.MustNewConstMetric(h.orphans, prometheus.CounterValue, float64(t.Found))
	c <- prometheus.MustNewConstMetric(h.sweptOff, prometheus.CounterValue, float64(t.Deleted))
	gauge(h.foreign, float64(t.Foreign))
	if now.Swept != nil {
		gauge(h.swept, flag(now.Sweeping == nil))
	}
}
