package partition

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics is where owners count. It is shared by all owners of a node. A nil
// Metrics counts nothing.
type Metrics struct {
	appendSeconds prometheus.Histogram
	syncSeconds   prometheus.Histogram
	appendBytes   prometheus.Counter
	copyLag       prometheus.Gauge
	copySeconds   prometheus.Histogram
	copyBytes     prometheus.Counter
	copies        *prometheus.CounterVec
	copiesStalled prometheus.Gauge
	reads         *prometheus.CounterVec
	readBytes     *prometheus.CounterVec
	holes         prometheus.Counter
	freedBytes    *prometheus.CounterVec
	freedSegments *prometheus.CounterVec
	retainFails   prometheus.Counter
	heldByFuture  prometheus.Gauge
	datedGone     prometheus.Counter
	doomed        prometheus.Gauge
	offline       prometheus.Gauge
}

// NewMetrics makes the collectors and registers them. A nil registerer keeps
// them unregistered.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	seconds := prometheus.ExponentialBuckets(0.0001, 2.5, 14) // 0.1 ms to 15 s
	m := &Metrics{
		appendSeconds: histogram("strandline_append_seconds", "Time from the call of an append to its acknowledgement.", seconds),
		syncSeconds:   histogram("strandline_fsync_seconds", "Time of an fsync of a partition's log.", seconds),
		appendBytes:   counter("strandline_append_bytes_total", "Bytes of acknowledged batches."),
		copyLag:       gauge("strandline_copy_lag_bytes", "Bytes of closed local segments that are not yet in the bucket."),
		copySeconds:   histogram("strandline_copy_seconds", "Time of a copy of a segment that succeeded.", prometheus.ExponentialBuckets(0.005, 2.5, 14)),
		copyBytes:     counter("strandline_copy_bytes_total", "Bytes of records that were copied to the bucket."),
		copies:        counters("strandline_copies_total", "Copies of segments to the bucket.", "result"),
		copiesStalled: gauge("strandline_copies_stalled", "Partitions whose last copy to the bucket failed."),
		reads:         counters("strandline_reads_total", "Reads that were answered.", "source"),
		readBytes:     counters("strandline_read_bytes_total", "Bytes of batches that were read.", "source"),
		holes:         counter("strandline_holes_total", "Times that an offset of a log was found in no tier. Above 0 is an alarm."),
		freedBytes:    counters("strandline_retention_bytes_total", "Bytes of segments that were removed from disk (tier local) or from the bucket (remote), by why.", "tier", "reason"),
		freedSegments: counters("strandline_retention_segments_total", "Segments that were removed from disk (tier local) or from the bucket (remote), by why.", "tier", "reason"),
		retainFails:   counter("strandline_retention_failures_total", "Steps of retention that failed and are tried again."),
		heldByFuture:  gauge("strandline_retention_held_partitions", "Partitions where a record dated in the future keeps what is older than retention.ms."),
		datedGone:     counter("strandline_retention_future_segments_total", "Segments on disk only that went by the time of their file, as a record in them is dated in the future."),
		doomed:        gauge("strandline_segments_condemned", "Segments that are on their way out of the bucket and whose rows are not gone yet."),
		offline:       gauge("strandline_partitions_offline", "Partitions whose disk failed."),
	}
	for _, result := range []string{"ok", "failed"} {
		m.copies.WithLabelValues(result)
	}
	for _, tier := range []string{"local", "remote"} {
		for _, reason := range []string{reasonAge, reasonSize, reasonTrim} {
			m.freedBytes.WithLabelValues(tier, reason)
			m.freedSegments.WithLabelValues(tier, reason)
		}
	}
	for _, source := range []string{"local", "remote"} {
		m.reads.WithLabelValues(source)
		m.readBytes.WithLabelValues(source)
	}
	if reg != nil {
		reg.MustRegister(m.appendSeconds, m.syncSeconds, m.appendBytes, m.copyLag, m.copySeconds, m.copyBytes, m.copies,
			m.copiesStalled, m.reads, m.readBytes, m.holes, m.offline,
			m.freedBytes, m.freedSegments, m.retainFails, m.heldByFuture, m.datedGone, m.doomed)
	}
	return m
}

func histogram(name, help string, buckets []float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
}

func (m *Metrics) appended(took time.Duration, bytes int) {
	if m != nil {
		m.appendSeconds.Observe(took.Seconds())
		m.appendBytes.Add(float64(bytes))
	}
}

func (m *Metrics) synced(took time.Duration) {
	if m != nil {
		m.syncSeconds.Observe(took.Seconds())
	}
}

func (m *Metrics) copied(bytes int64, took time.Duration) {
	if m != nil {
		m.copies.WithLabelValues("ok").Inc()
		m.copyBytes.Add(float64(bytes))
		m.copySeconds.Observe(took.Seconds())
	}
}

func (m *Metrics) copyFailed() {
	if m != nil {
		m.copies.WithLabelValues("failed").Inc()
	}
}

// stalled counts a partition in or out of those whose copies fail.
func (m *Metrics) stalled(by float64) {
	if m != nil {
		m.copiesStalled.Add(by)
	}
}

// lag makes the gauge, which sums up all partitions, hold now of this one instead
// of *held.
func (m *Metrics) lag(held *int64, now int64) {
	if m != nil {
		m.copyLag.Add(float64(now - *held))
	}
	*held = now
}

func (m *Metrics) read(remote bool, bytes int) {
	if m == nil {
		return
	}
	source := "local"
	if remote {
		source = "remote"
	}
	m.reads.WithLabelValues(source).Inc()
	m.readBytes.WithLabelValues(source).Add(float64(bytes))
}

func (m *Metrics) hole() {
	if m != nil {
		m.holes.Inc()
	}
}

// disk counts a partition in or out of those that are offline.
func (m *Metrics) disk(by float64) {
	if m != nil {
		m.offline.Add(by)
	}
}

// deleted counts segments that were removed from a tier.
func (m *Metrics) deleted(tier, reason string, segments int, bytes int64) {
	if m != nil {
		m.freedSegments.WithLabelValues(tier, reason).Add(float64(segments))
		m.freedBytes.WithLabelValues(tier, reason).Add(float64(bytes))
	}
}

// condemned makes the gauge, which sums up all partitions, hold now of this one
// instead of *held.
func (m *Metrics) condemned(held *int, now int) {
	if m != nil {
		m.doomed.Add(float64(now - *held))
	}
	*held = now
}

func (m *Metrics) retainFailed() {
	if m != nil {
		m.retainFails.Inc()
	}
}

// held counts a partition in or out of those whose segments the future keeps.
func (m *Metrics) held(by int) {
	if m != nil {
		m.heldByFuture.Add(float64(by))
	}
}

// outdated counts a segment that went by the time of its file, whatever its records
// say.
func (m *Metrics) outdated() {
	if m != nil {
		m.datedGone.Inc()
	}
}
