package admin

import (
	"net/http"

	"github.com/strandline-io/strandline/gateway/admin/client"
	"github.com/strandline-io/strandline/gateway/broker"
	"github.com/strandline-io/strandline/tiers"
)

// trimPartition deletes records from the start of a partition on. A dry run, or a
// refusal, deletes nothing.
func (s *Server) trimPartition(w http.ResponseWriter, r *http.Request) error {
	o, index, err := s.owner(r)
	if err != nil {
		return err
	}
	var in client.Trim
	if err := readJSON(r, &in, false); err != nil {
		return err
	}
	topic := o.Identity().Name.Topic
	trim := s.o.Broker.PlanTrim
	switch {
	case in.DryRun && in.Confirm:
		return tiers.E(tiers.InvalidRequest, "trim", topic, "dry_run and confirm contradict each other: give one of them")
	case in.Confirm:
		trim = s.o.Broker.Trim
	case !in.DryRun:
		return tiers.E(tiers.InvalidRequest, "trim", topic, "nothing was deleted: ask with dry_run first, then with confirm")
	}
	done, err := trim(r.Context(), topic, index, trimOf(in))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, client.Trimmed{
		Topic: topic, Partition: index, Done: in.Confirm, LogStart: int64(done.LogStart), Offset: int64(done.Offset),
		Offsets: int64(done.Offset - done.LogStart), Segments: done.Segments, LocalBytes: done.LocalBytes, RemoteBytes: done.RemoteBytes,
		Newest: done.Newest, Newer: done.Newer,
	})
}

func trimOf(in client.Trim) broker.Trim {
	out := broker.Trim{AllowNewer: in.AllowNewer}
	if in.To != nil {
		to := tiers.Offset(*in.To)
		if *in.To == client.Latest {
			to = tiers.NoOffset
		}
		out.To = &to
	}
	if in.Before != nil {
		out.Before = new(int64(*in.Before))
	}
	return out
}

// retainPartition runs a retention pass, while the caller waits or in the
// background.
func (s *Server) retainPartition(w http.ResponseWriter, r *http.Request) error {
	o, _, err := s.owner(r)
	if err != nil {
		return err
	}
	return s.inBackground(w, r, o, "retention", o.Retain)
}
