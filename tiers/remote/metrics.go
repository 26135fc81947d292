package remote

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// register registers c, or returns the one that has its place already: two
// caches or buckets of one process share their series. Without a registry c is
// counted and never shown.
func register[C prometheus.Collector](r prometheus.Registerer, c C) C {
	if r == nil {
		return c
	}
	err := r.Register(c)
	if there, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if old, ok := there.ExistingCollector.(C); ok {
			return old
		}
	}
	return c
}

func counters(r prometheus.Registerer, subsystem, name, help string, labels ...string) *prometheus.CounterVec {
	return register(r, prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "strandline", Subsystem: subsystem, Name: name, Help: help,
	}, labels))
}

func counter(r prometheus.Registerer, subsystem, name, help string) prometheus.Counter {
	return register(r, prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: "strandline", Subsystem: subsystem, Name: name, Help: help,
	}))
}

func gauge(r prometheus.Registerer, subsystem, name, help string, value func() float64) {
	register(r, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "strandline", Subsystem: subsystem, Name: name, Help: help,
	}, value))
}

// cacheMetrics count what a Cache does. The label kind is chunk or meta.
type cacheMetrics struct {
	hits, misses, joined, fetched, damaged *prometheus.CounterVec
	served, ahead                          prometheus.Counter
}

func newCacheMetrics(r prometheus.Registerer, chunkBytes, metaBytes func() float64) cacheMetrics {
	const sub = "remote_cache"
	gauge(r, sub, "chunk_bytes", "Bytes of records in memory.", chunkBytes)
	gauge(r, sub, "meta_bytes", "Bytes of companions in memory.", metaBytes)
	return cacheMetrics{
		hits:    counters(r, sub, "hits_total", "Reads that found what they wanted in memory.", "kind"),
		misses:  counters(r, sub, "misses_total", "Reads that made the cache ask the object store.", "kind"),
		joined:  counters(r, sub, "joined_total", "Reads that waited for a fetch that was under way.", "kind"),
		fetched: counters(r, sub, "fetched_bytes_total", "Bytes read from the object store.", "kind"),
		damaged: counters(r, sub, "checksum_failures_total", "Answers whose checksum was wrong.", "kind"),
		served:  counter(r, sub, "served_bytes_total", "Bytes of records given to readers."),
		ahead:   counter(r, sub, "read_ahead_total", "Fetches that were begun before a reader asked."),
	}
}
