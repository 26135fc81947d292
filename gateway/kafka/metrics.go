package kafka

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// metrics is what the server counts.
type metrics struct {
	requests    *prometheus.CounterVec
	duration    *prometheus.HistogramVec
	connections *prometheus.GaugeVec
	refused     *prometheus.CounterVec
	protocol    *prometheus.CounterVec
	sent        prometheus.Counter
	received    prometheus.Counter
	sessions    prometheus.Gauge
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "strandline_requests_total", Help: "Kafka requests answered, by API and by the first error in the answer.",
		}, []string{"api", "error"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "strandline_request_duration_seconds", Help: "From the last byte of a Kafka request to the first of its response.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2.5, 14),
		}, []string{"api"}),
		connections: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "strandline_connections", Help: "Open Kafka connections.",
		}, []string{"listener"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "strandline_connections_refused_total", Help: "Kafka connections closed at once, by the limit that they met.",
		}, []string{"reason"}),
		protocol: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "strandline_protocol_errors_total", Help: "Kafka connections closed because of what the peer sent.",
		}, []string{"reason"}),
		sent: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "strandline_network_sent_bytes_total", Help: "Bytes of Kafka responses sent.",
		}),
		received: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "strandline_network_received_bytes_total", Help: "Bytes of Kafka requests received.",
		}),
		sessions: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "strandline_fetch_sessions", Help: "Incremental fetch sessions held (KIP-227).",
		}),
	}
	if r != nil {
		r.MustRegister(m.requests, m.duration, m.connections, m.refused, m.protocol, m.sent, m.received, m.sessions)
	}
	return m
}

// apiName names an API for metrics and logs.
func apiName(key int16) string { return kmsg.NameForKey(key) }
