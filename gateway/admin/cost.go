package admin

// GET /v1/cost: what the bucket was asked for and what that costs.

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"github.com/strandline-io/strandline/gateway/admin/client"
	"github.com/strandline-io/strandline/gateway/broker"
	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers/remote"
)

// noBucket answers what only a node with a bucket can.
func noBucket() error {
	return problem{http.StatusConflict, "no bucket", "this node has no bucket: everything is on its disk, and there are no requests to count or to limit"}
}

func (s *Server) getCost(w http.ResponseWriter, r *http.Request) error {
	if s.o.Gate == nil {
		return noBucket()
	}
	stored, err := s.o.Broker.Stored(r.Context())
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, costOf(s.o.Gate.Meter().Tally(), stored, s.o.Broker.Catalog().Topics(), s.o.Prices, time.Now()))
}

// costOf is the whole bill.
func costOf(t remote.Tally, stored broker.Stored, topics []control.Topic, p remote.Prices, now time.Time) client.Cost {
	up := now.Sub(t.Since)
	out := client.Cost{
		Since: t.Since.UTC(), Seconds: up.Seconds(), Topics: []client.CostLine{},
		Prices: client.Prices{
			PutPerMillion: p.WritesPerMillion, GetPerMillion: p.ReadsPerMillion, StorageGiBMonth: p.StorageGiBMonth,
			EgressGiB: p.EgressGiB, Currency: p.Currency,
		},
	}
	bytes := stored.Deleted
	for _, topic := range topics {
		line := costLine(t.Topics[topic.ID], stored.Topics[topic.ID], p, up)
		line.Topic, line.ID = topic.Name, topic.ID.String()
		out.Topics = append(out.Topics, line)
		bytes += stored.Topics[topic.ID]
	}
	slices.SortStableFunc(out.Topics, func(a, b client.CostLine) int {
		return cmp.Or(cmp.Compare(b.Requests+b.Egress+b.Storage, a.Requests+a.Egress+a.Storage), cmp.Compare(a.Topic, b.Topic))
	})
	out.Cluster = costLine(t.Cluster, 0, p, up)
	out.Deleted = costLine(t.Deleted, stored.Deleted, p, up)
	out.Total = costLine(t.Total(), bytes, p, up)
	return out
}

// leastToProject is how long a node must be up for a guess about the future.
const leastToProject = time.Minute

func costLine(c remote.Counts, stored int64, p remote.Prices, up time.Duration) client.CostLine {
	line := client.CostLine{
		Writes: c.Writes, Reads: c.Reads, Deletes: c.Deletes, Refused: c.Refused, BytesUp: c.BytesUp, BytesDown: c.BytesDown,
		StoredBytes: stored, Requests: p.OfRequests(c), Egress: p.OfEgress(c), Storage: p.OfStorage(stored),
	}
	if up < leastToProject {
		return line
	}
	const day = 24 * time.Hour
	perDay := (line.Requests+line.Egress)*float64(day)/float64(up) + line.Storage/30
	perMonth := 30 * perDay
	line.Projected24h, line.Projected30d = &perDay, &perMonth
	return line
}
