package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const (
	mebibyte = 1 << 20
	gibibyte = 1 << 30

	// The range of a latency, in microseconds; what is longer counts as the longest.
	maxLatency = int64(10 * time.Minute / time.Microsecond)
	digits     = 3
)

// Latency is a distribution, in milliseconds.
type Latency struct {
	Count int64   `json:"count"`
	Mean  float64 `json:"mean_ms"`
	P50   float64 `json:"p50_ms"`
	P99   float64 `json:"p99_ms"`
	P999  float64 `json:"p999_ms"`
	Max   float64 `json:"max_ms"`
}

// stopwatch collects latencies. It may be used by many goroutines at once.
type stopwatch struct {
	mu sync.Mutex
	h  *hdrhistogram.Histogram
}

func newStopwatch() *stopwatch { return &stopwatch{h: hdrhistogram.New(1, maxLatency, digits)} }

func (s *stopwatch) record(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.h.RecordValue(max(1, min(maxLatency, d.Microseconds()))) // It is in the range.
}

// latency is nil if nothing was recorded.
func (s *stopwatch) latency() *Latency {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.h.TotalCount() == 0 {
		return nil
	}
	ms := func(us int64) float64 { return float64(us) / 1000 }
	return &Latency{
		Count: s.h.TotalCount(), Mean: s.h.Mean() / 1000, P50: ms(s.h.ValueAtQuantile(50)), P99: ms(s.h.ValueAtQuantile(99)),
		P999: ms(s.h.ValueAtQuantile(99.9)), Max: ms(s.h.Max()),
	}
}

// merge adds the latencies of another stopwatch.
func (s *stopwatch) merge(o *stopwatch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.h.Merge(o.h)
}

// ClientCost is what the benchmark's own process spent.
type ClientCost struct {
	CPUSeconds       float64 `json:"cpu_s"`
	CPUPerGiB        float64 `json:"cpu_s_per_gib"`
	AllocsPerRecord  float64 `json:"allocs_per_record"`
	AllocdPerRecord  float64 `json:"alloc_bytes_per_record"`
	GarbageCollected uint32  `json:"gc_cycles"`
}

// ServerCost is what the server spent, from its metrics.
type ServerCost struct {
	CPUSeconds float64 `json:"cpu_s"`
	CPUPerGiB  float64 `json:"cpu_s_per_gib"`
	RSSBytes   int64   `json:"rss_bytes"` // at the end
	OpenFiles  int64   `json:"open_files"`
	BucketDown int64   `json:"bucket_down_bytes"` // that the node read from its bucket, for anybody
}

// meter measures what a run costs, from begin to end.
type meter struct {
	began  time.Time
	cpu    float64
	mem    runtime.MemStats
	admin  string // address; empty: the server is not asked
	server map[string]float64
}

func begin(ctx context.Context, admin string) (*meter, error) {
	m := &meter{admin: admin}
	if admin != "" {
		var err error
		if m.server, err = serverMetrics(ctx, admin); err != nil {
			return nil, err
		}
	}
	runtime.ReadMemStats(&m.mem)
	m.cpu, m.began = cpuSeconds(), time.Now()
	return m, nil
}

// end fills in what the run took and cost. records and bytes are those of rep.
func (m *meter) end(ctx context.Context, rep *Report, took time.Duration) error {
	cpu := cpuSeconds() - m.cpu
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	seconds, gib := max(took.Seconds(), 1e-9), float64(rep.Bytes)/gibibyte
	rep.Seconds = seconds
	rep.RecordsPerSecond = float64(rep.Records) / seconds
	rep.MiBPerSecond = float64(rep.Bytes) / mebibyte / seconds
	rep.Client = ClientCost{
		CPUSeconds: cpu, CPUPerGiB: over(cpu, gib), GarbageCollected: mem.NumGC - m.mem.NumGC,
		AllocsPerRecord: over(float64(mem.Mallocs-m.mem.Mallocs), float64(rep.Records)),
		AllocdPerRecord: over(float64(mem.TotalAlloc-m.mem.TotalAlloc), float64(rep.Records)),
	}
	if m.admin == "" {
		return nil
	}
	now, err := serverMetrics(ctx, m.admin)
	if err != nil {
		return err
	}
	cpu = now[metricCPU] - m.server[metricCPU]
	rep.Server = &ServerCost{
		CPUSeconds: cpu, CPUPerGiB: over(cpu, gib), RSSBytes: int64(now[metricRSS]), OpenFiles: int64(now[metricFiles]),
		BucketDown: int64(now[metricDown] - m.server[metricDown]),
	}
	return nil
}

// over is a/b, or 0 where there is no b.
func over(a, b float64) float64 {
	if b <= 0 {
		return 0
	}
	return a / b
}

// Metrics of a server's process, as every Prometheus client library names them,
// and what a node has read from its bucket.
const (
	metricCPU   = "process_cpu_seconds_total"
	metricRSS   = "process_resident_memory_bytes"
	metricFiles = "process_open_fds"
	metricDown  = `strandline_bucket_bytes_total{direction="down"}`
)

// serverMetrics reads the metrics of the server's process, those of them that a
// report needs.
func serverMetrics(ctx context.Context, admin string) (out map[string]float64, err error) {
	if !strings.Contains(admin, "://") {
		admin = "http://" + admin
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(admin, "/")+"/metrics", nil)
	if err != nil {
		return nil, fmt.Errorf("metrics of the server: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("metrics of the server: %w (is --admin its admin address?)", err)
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("metrics of the server: %s answers %s (is --admin its admin address?)", req.URL, resp.Status)
	}
	out = make(map[string]float64)
	for sc := bufio.NewScanner(resp.Body); sc.Scan(); {
		name, value, ok := strings.Cut(sc.Text(), " ")
		if !ok || (name != metricCPU && name != metricRSS && name != metricFiles && name != metricDown) {
			continue
		}
		if out[name], err = strconv.ParseFloat(value, 64); err != nil {
			return nil, fmt.Errorf("metrics of the server: %s: %w", name, err)
		}
	}
	return out, nil
}
