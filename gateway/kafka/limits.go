package kafka

import (
	"fmt"
	"time"

	"github.com/strandline-io/strandline/gateway/groups"
)

// Limits bound what peers can make the server do. Zero values stand for the
// defaults.
type Limits struct {
	MaxRequestBytes       int // of a Produce; Kafka's socket.request.max.bytes; default 100 MiB
	MaxControlBytes       int // of any other request; default 8 MiB
	MaxPartitions         int // that one Produce may name; default 100,000
	InFlightRequestBytes  int // of requests larger than 64 KiB that are read or handled; default 256 MiB
	InFlightResponseBytes int // of records read for responses; default 256 MiB
	FetchMaxBytes         int // of a Fetch response; Kafka's fetch.max.bytes; default 55 MiB
	MaxFetchWait          time.Duration
	FetchSessions         int // Kafka's max.incremental.fetch.session.cache.slots; default 1,000
	FetchSessionIdle      time.Duration
	OffsetMetadataBytes   int // Kafka's offset.metadata.max.bytes; default 4,096

	MaxConnections      int           // Kafka's max.connections; default 10,000
	MaxConnectionsPerIP int           // Kafka's max.connections.per.ip; default 1,000
	FirstRequestTimeout time.Duration // from accept to the first byte of a request; default 10 s
	IdleTimeout         time.Duration // between requests; Kafka's connections.max.idle.ms; default 10 min
	FrameTimeout        time.Duration // for each 64 KiB of a request that has begun; default 10 s
	WriteTimeout        time.Duration // for each 1 MiB of a response; default 30 s
}

// withDefaults fills in what is not set.
func (l Limits) withDefaults() Limits {
	ints := []struct {
		v *int
		d int
	}{
		{&l.MaxRequestBytes, 100 << 20},
		{&l.MaxControlBytes, 8 << 20},
		{&l.MaxPartitions, 100_000},
		{&l.InFlightRequestBytes, 256 << 20},
		{&l.InFlightResponseBytes, 256 << 20},
		{&l.FetchMaxBytes, 55 << 20},
		{&l.FetchSessions, 1000},
		{&l.OffsetMetadataBytes, groups.MaxMetadata},
		{&l.MaxConnections, 10_000},
		{&l.MaxConnectionsPerIP, 1000},
	}
	for _, e := range ints {
		if *e.v == 0 {
			*e.v = e.d
		}
	}
	times := []struct {
		v *time.Duration
		d time.Duration
	}{
		{&l.MaxFetchWait, 30 * time.Second},
		{&l.FetchSessionIdle, 2 * time.Minute}, // Kafka: min.incremental.fetch.session.eviction.ms
		{&l.FirstRequestTimeout, 10 * time.Second},
		{&l.IdleTimeout, 10 * time.Minute},
		{&l.FrameTimeout, 10 * time.Second},
		{&l.WriteTimeout, 30 * time.Second},
	}
	for _, e := range times {
		if *e.v == 0 {
			*e.v = e.d
		}
	}
	l.MaxControlBytes = min(l.MaxControlBytes, l.MaxRequestBytes)
	return l
}

// valid returns nil if the limits, filled in, can be kept together.
func (l Limits) valid() error {
	switch {
	case l.MaxRequestBytes < 0 || l.MaxControlBytes < 0 || l.MaxPartitions < 0 || l.FetchMaxBytes < 0 || l.FetchSessions < 0 ||
		l.OffsetMetadataBytes < 0 || l.MaxConnections < 0 || l.MaxConnectionsPerIP < 0 || l.InFlightResponseBytes < 0:
		return fmt.Errorf("limits must not be negative: %+v", l)
	case l.MaxRequestBytes > l.InFlightRequestBytes:
		return fmt.Errorf("socket.request.max.bytes = %d does not fit into the %d bytes for requests in flight: raise that or lower this",
			l.MaxRequestBytes, l.InFlightRequestBytes)
	case l.MaxFetchWait < 0 || l.FirstRequestTimeout < 0 || l.IdleTimeout < 0 || l.FrameTimeout < 0 || l.WriteTimeout < 0:
		return fmt.Errorf("time limits must not be negative: %+v", l)
	}
	return nil
}
