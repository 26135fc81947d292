package admin

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

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
	switch {
	case h.Unclaimed != nil:
		out = append(out, h.Unclaimed.Error())
	case h.Bucket != nil:
		out = append(out, "the bucket does not answer: "+h.Bucket.Error())
	}
	if h.StalledBy != nil {
		out = append(out, fmt.Sprintf("copies of %d partitions to the bucket fail, those of %s since %s: %s: what they hold exists once",
			h.Stalled, h.StalledBy.Partition, h.StalledBy.Since.UTC().Format(time.RFC3339), h.StalledBy.Err))
	}
	if h.Held > 0 {
		out = append(out, held(h))
	}
	for _, err := range []error{h.DiskDown, h.Full} {
		if err != nil {
			out = append(out, err.Error())
		}
	}
	if h.Sweeping != nil {
		out = append(out, "the last sweep of the bucket was not complete: "+h.Sweeping.Error())
	}
	return append(out, h.Offline...)
}

// held names what only records from the future keep (report 110).
func held(h broker.Health) string {
	var b strings.Builder
	fmt.Fprintf(&b, "a record dated in the future keeps what is older than retention.ms in %d partitions:", h.Held)
	for i, p := range h.HeldBy {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, " %s from offset %d on (dated %s)", p.Partition, p.Base, time.UnixMilli(p.MaxTimestamp).UTC().Format(time.RFC3339))
	}
	if more := h.Held - len(h.HeldBy); more > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	b.WriteString("; retention.bytes still counts, and `strandline topic trim` removes them")
	return b.String()
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
		Disk:       client.Disk{FreeBytes: h.Disk.Free, TotalBytes: h.Disk.Total, FloorBytes: h.Disk.Floor, ReadOnly: message(h.Full), Offline: message(h.DiskDown)},
		BucketDown: message(h.Bucket),
		Stalled:    h.Stalled,
	})
}

// message is what an error says, empty for none.
func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func (s *Server) getConfig(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, client.NodeConfig{Config: append([]client.ConfigKey{}, s.o.Config...)})
}
