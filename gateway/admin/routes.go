package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"path"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/strandline-io/strandline/tiers"
)

// handler answers a request or says what went wrong.
type handler func(w http.ResponseWriter, r *http.Request) error

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	for pattern, h := range map[string]handler{
		"GET /livez":    s.livez,
		"GET /readyz":   s.readyz,
		"GET /startupz": s.startupz,

		"GET /v1/cluster":                  s.getCluster,
		"GET /v1/cost":                     s.getCost,
		"GET /v1/limits":                   s.getLimits,
		"PATCH /v1/limits":                 s.patchLimits,
		"GET /v1/config":                   s.getConfig,
		"GET /v1/topics":                   s.listTopics,
		"POST /v1/topics":                  s.createTopic,
		"GET /v1/topics/{topic}":           s.getTopic,
		"DELETE /v1/topics/{topic}":        s.deleteTopic,
		"GET /v1/topics/{topic}/configs":   s.getConfigs,
		"PATCH /v1/topics/{topic}/configs": s.patchConfigs,

		"GET /v1/topics/{topic}/partitions/{partition}/segments": s.listSegments,
		"POST /v1/topics/{topic}/partitions/{partition}/roll":    s.rollPartition,
		"POST /v1/topics/{topic}/partitions/{partition}/copy":    s.copyPartition,
		"POST /v1/topics/{topic}/partitions/{partition}/reopen":  s.reopenPartition,

		"GET /v1/sweep":  s.lastSweep,
		"POST /v1/sweep": s.sweepBucket,
		"POST /v1/topics/{topic}/partitions/{partition}/trim":   s.trimPartition,
		"POST /v1/topics/{topic}/partitions/{partition}/retain": s.retainPartition,
	} {
		mux.Handle(pattern, s.answering(h))
	}
	metrics := promhttp.HandlerFor(s.o.Gatherer, promhttp.HandlerOpts{})
	mux.Handle("GET /metrics", metrics)
	return s.guard(mux)
}

// answering turns the error of a handler into a problem.
func (s *Server) answering(h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		if err := h(w, r); err != nil {
			s.fail(w, r, err)
		}
	})
}

// guard refuses what must not reach a handler, and words the refusals of the mux.
func (s *Server) guard(mux *http.ServeMux) http.Handler {
	cross := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		switch err := cross.Check(r); {
		case err != nil:
			writeProblem(w, http.StatusForbidden, "forbidden", "a page of another site made this request: "+err.Error())
		case s.onLoopback() && !isLocalName(r.Host):
			writeProblem(w, http.StatusForbidden, "forbidden",
				fmt.Sprintf("the host name %q is not one of this machine: use localhost or an address", r.Host))
		case path.Clean(r.URL.Path) != r.URL.Path:
			writeProblem(w, http.StatusBadRequest, "bad path", fmt.Sprintf("the path %q has empty or dotted parts", r.URL.Path))
		default:
			serve(mux, w, r)
		}
	})
}

// onLoopback reports whether only this machine reaches the listener. A handler
// without one counts as such.
func (s *Server) onLoopback() bool {
	if s.listener == nil {
		return true
	}
	addr, err := netip.ParseAddrPort(s.listener.Addr().String())
	return err == nil && addr.Addr().Unmap().IsLoopback()
}

// isLocalName keeps a site from reaching a node on loopback by pointing its own
// name at 127.0.0.1 (DNS rebinding): only localhost and addresses will do.
func isLocalName(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.Trim(hostport, "[]")
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	_, err = netip.ParseAddr(host)
	return err == nil
}

// serve lets the mux answer; where it has no handler, the status is its own and
// the body a problem.
func serve(mux *http.ServeMux, w http.ResponseWriter, r *http.Request) {
	if _, pattern := mux.Handler(r); pattern != "" {
		mux.ServeHTTP(w, r)
		return
	}
	var probe statusOnly
	mux.ServeHTTP(&probe, r)
	detail := fmt.Sprintf("there is nothing at %s", r.URL.Path)
	title := "not found"
	if allow := probe.Header().Get("Allow"); allow != "" {
		w.Header().Set("Allow", allow)
		title, detail = "method not allowed", fmt.Sprintf("%s takes %s, not %s", r.URL.Path, allow, r.Method)
	}
	writeProblem(w, probe.status, title, detail)
}

// statusOnly is a ResponseWriter that keeps status and header.
type statusOnly struct {
	header http.Header
	status int
}

func (p *statusOnly) Header() http.Header {
	if p.header == nil {
		p.header = http.Header{}
	}
	return p.header
}

func (p *statusOnly) WriteHeader(status int) { p.status = status }

func (*statusOnly) Write(b []byte) (int, error) { return len(b), nil }

// writeJSON answers with v.
func writeJSON(w http.ResponseWriter, status int, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	write(w, status, raw)
	return nil
}

// write sends an answer. A peer that does not take it is cut off after a while;
// there is nobody to tell.
func write(w http.ResponseWriter, status int, raw []byte) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout)) // A recorder of a test has none.
	w.WriteHeader(status)
	_, _ = w.Write(append(raw, '\n')) // The peer left.
}

// readJSON decodes the body of a request, which must be one JSON value without
// unknown members. An empty body leaves v as it is if optional is set.
func readJSON(r *http.Request, v any, optional bool) error {
	if e := r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return problem{http.StatusUnsupportedMediaType, "unsupported media type", "send the body without Content-Encoding"}
	}
	raw, err := io.ReadAll(r.Body)
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return problem{http.StatusRequestEntityTooLarge, "body too large", fmt.Sprintf("a body has at most %d bytes", tooLarge.Limit)}
	}
	if err != nil {
		return tiers.E(tiers.InvalidRequest, "read body", "", "%w", err)
	}
	if len(raw) == 0 && optional {
		return nil
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || (kind != "application/json" && kind != "application/merge-patch+json") {
		return problem{http.StatusUnsupportedMediaType, "unsupported media type", "send Content-Type: application/json"}
	}
	dec := json.NewDecoder(strings.NewReader(string(raw)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return tiers.E(tiers.InvalidRequest, "read body", "", "%w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return tiers.E(tiers.InvalidRequest, "read body", "", "there is more than one JSON value")
	}
	return nil
}
