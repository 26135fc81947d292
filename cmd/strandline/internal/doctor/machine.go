package doctor

import (
	"context"
	"fmt"

	"github.com/strandline-io/strandline/gateway"
)

const (
	// segmentFiles is how many files of segments a node keeps open at most.
	segmentFiles = 7500
	// otherFiles are those of the control plane, the listeners and the bucket.
	otherFiles = 500
	// baseMemory is what a node takes besides its caches and requests, with 10,000
	// partitions.
	baseMemory = 256 << 20
)

// machine checks the limits of a process.
func (e *exam) machine(context.Context) []Check {
	files, err := openFileLimit()
	checks := []Check{judgeFiles(files, e.c.Kafka.MaxConnections)}
	if err != nil {
		checks[0] = skip("limits.files", "%v", err)
	}
	limit, what := memoryLimit()
	return append(checks, judgeMemory(limit, what, memoryWanted(e.c)))
}

func judgeFiles(limit uint64, connections int64) Check {
	want := uint64(segmentFiles + otherFiles + connections)
	c := ok("limits.files", "%d open files", limit)
	c.Values = map[string]float64{"limit": float64(limit), "wanted": float64(want)}
	advice := fmt.Sprintf("raise it to %d or more (LimitNOFILE= in the unit, ulimit -n, --ulimit nofile= of the container)", want)
	switch {
	case limit < segmentFiles+otherFiles:
		c.Found += fmt.Sprintf("; segments alone may take %d", segmentFiles)
		return c.fail("%s", advice)
	case limit < want:
		c.Found += fmt.Sprintf("; %d for segments and kafka.max_connections = %d do not fit", segmentFiles, connections)
		return c.warn("%s, or lower kafka.max_connections", advice)
	}
	return c
}

// memoryWanted is what a node may take by its configuration, in bytes.
func memoryWanted(c gateway.Config) int64 {
	return baseMemory + c.CacheBytes + c.Kafka.InFlightRequestBytes + c.Kafka.InFlightResponseBytes
}

// judgeMemory compares the limit, 0 if it is not known, with what is wanted.
func judgeMemory(limit int64, what string, want int64) Check {
	if limit <= 0 {
		return skip("limits.memory", "the memory of this machine is not known; the configuration may take %s", human(want))
	}
	c := ok("limits.memory", "%s (%s), the configuration may take %s", human(limit), what, human(want))
	c.Values = map[string]float64{"limit_bytes": float64(limit), "wanted_bytes": float64(want)}
	switch {
	case want > limit:
		return c.fail("lower cache.bytes, kafka.in_flight_request_bytes or kafka.in_flight_response_bytes, or give the node more memory: it would be killed under load")
	case want > limit/4*3:
		return c.warn("leave room for the page cache and the runtime: lower cache.bytes or the in-flight limits, or give the node more memory")
	}
	return c
}

// human prints a number of bytes for people.
func human(n int64) string {
	const units = "KMGTPE"
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	v, i := float64(n)/1024, 0
	for v >= 1024 && i < len(units)-1 {
		v, i = v/1024, i+1
	}
	return fmt.Sprintf("%.1f %ciB", v, units[i])
}
