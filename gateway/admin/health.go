package admin

import (
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/strandline-io/strandline/gateway/admin/client"
	"github.com/strandline-io/strandline/gateway/broker"
)

// startup remembers that every partition was tried once: later topics do not
// make a node start up again.
type startup struct{ done atomic.Bool }

func (u *startup) over(h broker.Health) bool {
	if h.Opening == 0 {
		u.done.Store(true)
	}
	return u.done.Load()
}

// livez answers as long as the process can. It looks at nothing outside of it: a
// restart heals no bucket.
func (*Server) livez(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, client.Health{Status: "ok", Reasons: []string{}, Warnings: []string{}})
}

// startupz answers once the partitions that were there at the start were opened.
func (s *Server) startupz(w http.ResponseWriter, _ *http.Request) error {
	h := s.o.Broker.Health()
	var reasons []string
	if !s.started.over(h) {
		reasons = append(reasons, opening(h))
	}
	return writeHealth(w, reasons, nil)
}

func opening(h broker.Health) string {
	return fmt.Sprintf("%d of %d partitions are still being opened", h.Opening, h.Partitions)
}

// readyz says whether clients should be sent here.
func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) error {
	h := s.o.Broker.Health()
	var reasons []string
	if why := s.o.Unready(); why != "" {
		reasons = append(reasons, why)
	}
	if h.Fenced != nil {
		reasons = append(reasons, h.Fenced.Error())
	}
	if !s.started.over(h) {
		reasons = append(reasons, opening(h))
	}
	return writeHealth(w, reasons, warnings(h))
}

// warnings are what is wrong without a reason to take all clients away.
func warnings(h broker.Health) []string {
	out := make([]string, 0, len(h.Offline)+2)
	if h.Publishing != nil {
		out = append(out, h.Publishing.Error())
	}
	if h.Unclaimed != nil {
		out = append(out, h.Unclaimed.Error())
	}
	return append(out, h.Offline...)
}

func writeHealth(w http.ResponseWriter, reasons, warnings []string) error {
	h := client.Health{Status: "ok", Reasons: []string{}, Warnings: []string{}}
	h.Warnings = append(h.Warnings, warnings...)
	if len(reasons) == 0 {
		return writeJSON(w, http.StatusOK, h)
	}
	h.Status, h.Reasons = "unavailable", reasons
	return writeJSON(w, http.StatusServiceUnavailable, h)
}

func (s *Server) getCluster(w http.ResponseWriter, _ *http.Request) error {
	node, h := s.o.Broker.Node(), s.o.Broker.Health()
	return writeJSON(w, http.StatusOK, client.Cluster{
		ClusterID:  node.Cluster,
		NodeID:     int32(node.ID),
		Rack:       node.Rack,
		Version:    s.o.Version,
		Kafka:      append([]string{}, s.o.Kafka()...),
		Bucket:     s.o.Bucket,
		Topics:     len(s.o.Broker.Catalog().Topics()),
		Partitions: h.Partitions,
		Offline:    append([]string{}, h.Offline...),
	})
}

func (s *Server) getConfig(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, client.NodeConfig{Config: append([]client.ConfigKey{}, s.o.Config...)})
}
