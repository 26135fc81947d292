package bench

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestStopwatch(t *testing.T) {
	t.Parallel()
	if l := newStopwatch().latency(); l != nil {
		t.Error("a latency of nothing")
	}
	s := newStopwatch()
	for i := range 1000 {
		s.record(time.Duration(i+1) * time.Millisecond)
	}
	o := newStopwatch()
	o.record(0)
	o.record(time.Hour) // longer than what is told apart
	s.merge(o)
	l := s.latency()
	near := func(got, want float64) bool { return math.Abs(got-want) <= want/100 }
	if l.Count != 1002 || !near(l.P50, 500) || !near(l.P99, 991) || !near(l.P999, 1000) || !near(l.Max, 600_000) {
		t.Errorf("%+v", l)
	}
}

func TestServerMetrics(t *testing.T) {
	t.Parallel()
	body, status := "", http.StatusOK
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}))
	defer srv.Close()
	body = "# HELP x\nprocess_cpu_seconds_total 1.5\nprocess_resident_memory_bytes 1.2e+07\nprocess_cpu_seconds_total_more 9\nother{a=\"b\"} x\n"
	for _, address := range []string{srv.URL, srv.URL + "/", strings.TrimPrefix(srv.URL, "http://")} {
		m, err := serverMetrics(t.Context(), address)
		if err != nil || m[metricCPU] != 1.5 || m[metricRSS] != 1.2e7 || len(m) != 2 {
			t.Errorf("%v, %v", m, err)
		}
	}
	body = "process_cpu_seconds_total many\n"
	if _, err := serverMetrics(t.Context(), srv.URL); err == nil {
		t.Error("not a number, and no error")
	}
	status = http.StatusForbidden
	if _, err := serverMetrics(t.Context(), srv.URL); err == nil || !strings.Contains(err.Error(), "403") {
		t.Error(err)
	}
	if _, err := serverMetrics(t.Context(), "127.0.0.1:1"); err == nil || !strings.Contains(err.Error(), "--admin") {
		t.Error(err)
	}
}
