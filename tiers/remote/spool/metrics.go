package spool

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	read, written, damaged, skipped, failures prometheus.Counter
}

// newMetrics registers the series, unless a spool of this process has done so.
func newMetrics(r prometheus.Registerer, s *Spool) metrics {
	const sub = "disk_cache"
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "strandline", Subsystem: sub, Name: name, Help: help})
	}
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "strandline", Subsystem: sub, Name: name, Help: help}, func() float64 {
			s.mu.Lock()
			defer s.mu.Unlock()
			return value()
		})
	}
	m := metrics{
		read:     counter("read_bytes_total", "Bytes that the disk cache gave."),
		written:  counter("written_bytes_total", "Bytes that were put into the disk cache."),
		damaged:  counter("damaged_total", "Files of the disk cache that were wrong, and were removed."),
		skipped:  counter("skipped_total", "Pieces that were not kept because the disk was behind."),
		failures: counter("failures_total", "Times that the disk cache was turned off for a while because its disk failed."),
	}
	if r == nil {
		return m
	}
	for _, c := range []prometheus.Collector{
		m.read, m.written, m.damaged, m.skipped, m.failures,
		gauge("bytes", "Bytes of all files of the disk cache.", func() float64 { return float64(s.used) }),
		gauge("files", "Files of the disk cache.", func() float64 { return float64(len(s.files)) }),
		gauge("up", "Whether the disk cache is in use: 0 while it is off because its disk failed.", func() float64 {
			if s.closed || s.isOff() {
				return 0
			}
			return 1
		}),
	} {
		_ = r.Register(c) // taken: another spool of this process shows its own
	}
	return m
}
