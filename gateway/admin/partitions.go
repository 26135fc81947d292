package admin

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/strandline-io/strandline/gateway/admin/client"
	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/partition"
)

// partition pictures one partition, whatever state it is in.
func (s *Server) partition(ctx context.Context, t control.Topic, p control.Partition) client.Partition {
	out := client.Partition{Index: p.Index, State: "online", LeaderEpoch: int32(p.Epoch), HistoryGen: int32(p.Gen)}
	owner, err := s.o.Broker.Owner(t.Name, p.Index)
	if err != nil {
		out.State, out.Reason = "offline", err.Error()
		return out
	}
	v := owner.View()
	out.LeaderEpoch = int32(v.Epoch)
	out.LogStart, out.LocalLogStart, out.RemoteEnd = int64(v.LogStart), int64(v.LocalLogStart), int64(v.RemoteEnd)
	out.LastStable, out.HighWatermark, out.LogEnd = int64(v.LastStable), int64(v.HighWatermark), int64(v.LogEnd)
	if v.Err != nil {
		out.State, out.Reason = "offline", v.Err.Error()
		return out
	}
	segments, err := owner.Segments(ctx)
	if err != nil {
		out.State, out.Reason = "offline", err.Error()
		return out
	}
	for _, seg := range segments {
		if seg.Tier != "remote" {
			out.LocalSegments++
		}
		if seg.Tier != "local" {
			out.RemoteSegments++
		}
	}
	if why := s.o.Broker.ReadOnly(); why != nil {
		out.State, out.Reason = "read-only", why.Error()
	}
	sums := s.o.Broker.SumOf(t, segments)
	out.LocalBytes, out.RemoteBytes, out.CopyLagBytes = sums.Local, sums.Remote, sums.CopyLag
	if lag := owner.Lag(); lag.Segments > 0 {
		out.CopyLagSeconds = max(0, time.Since(lag.Oldest).Seconds())
	}
	return out
}

// owner finds the partition that the path names.
func (s *Server) owner(r *http.Request) (*partition.Owner, int32, error) {
	t, err := s.topic(r)
	if err != nil {
		return nil, 0, err
	}
	index, err := strconv.ParseUint(r.PathValue("partition"), 10, 31)
	if err != nil {
		return nil, 0, tiers.E(tiers.InvalidRequest, "find partition", t.Name, "%q is not the number of a partition", r.PathValue("partition"))
	}
	o, err := s.o.Broker.Owner(t.Name, int32(index))
	return o, int32(index), err
}

func (s *Server) listSegments(w http.ResponseWriter, r *http.Request) error {
	o, index, err := s.owner(r)
	if err != nil {
		return err
	}
	topic := o.Identity().Name.Topic
	x, err := s.o.Broker.Explain(r.Context(), topic, index)
	if err != nil {
		return err
	}
	m := x.Marks
	out := client.Segments{Topic: topic, Partition: index, Segments: []client.Segment{}, Summary: client.Summary{
		LogStart: int64(m.LogStart), LocalLogStart: int64(m.LocalLogStart), RemoteEnd: int64(m.RemoteEnd),
		HighWatermark: int64(m.HighWatermark), LogEnd: int64(m.LogEnd),
		LocalBytes: x.Sums.Local, RemoteBytes: x.Sums.Remote, BothBytes: x.Sums.Both, TotalBytes: x.Sums.Total(), CopyLagBytes: x.Sums.CopyLag,
		Next: append([]string{}, x.Next...),
	}}
	for _, seg := range x.Segments {
		out.Segments = append(out.Segments, segmentOf(seg))
	}
	return writeJSON(w, http.StatusOK, out)
}

func segmentOf(s partition.SegmentInfo) client.Segment {
	out := client.Segment{
		Base: int64(s.Base), Next: int64(s.Next), Tier: s.Tier, State: s.State, Bytes: s.Bytes,
		MaxTimestamp: s.MaxTimestamp, Key: s.Key, Why: s.Why, Epochs: []client.EpochStart{},
	}
	for _, e := range s.Epochs {
		out.Epochs = append(out.Epochs, client.EpochStart{Epoch: int32(e.Epoch), Start: int64(e.Start)})
	}
	return out
}

// rollPartition closes the active segment. It always waits: it takes one fsync.
func (s *Server) rollPartition(w http.ResponseWriter, r *http.Request) error {
	o, _, err := s.owner(r)
	if err != nil {
		return err
	}
	var in client.Wait
	if err := readJSON(r, &in, true); err != nil {
		return err
	}
	if err := o.Roll(r.Context()); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// copyPartition has the closed segments copied, while the caller waits or in the
// background.
func (s *Server) copyPartition(w http.ResponseWriter, r *http.Request) error {
	o, _, err := s.owner(r)
	if err != nil {
		return err
	}
	return s.inBackground(w, r, o, "copying", o.CopyAll)
}

// inBackground runs do while the caller waits, if the request says so, else until
// the server shuts down.
func (s *Server) inBackground(w http.ResponseWriter, r *http.Request, o *partition.Owner, what string, do func(context.Context) error) error {
	var in client.Wait
	if err := readJSON(r, &in, true); err != nil {
		return err
	}
	if in.Wait {
		if err := do(r.Context()); err != nil {
			return err
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	s.tasks.Go(func() {
		if err := do(s.life); err != nil && s.life.Err() == nil {
			s.o.Log.Warn(what+" on request failed, the node tries again by itself", "partition", o.Identity().Name.String(), "err", err)
		}
	})
	w.WriteHeader(http.StatusAccepted)
	return nil
}
