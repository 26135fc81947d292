package model

import (
	"context"
	"slices"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/partition"
)

// Segments returns the rows of a partition's history.
func (s *Store) Segments(ctx context.Context, id tiers.PartitionID, gen tiers.HistoryGen) (out []tiers.RemoteSegment, err error) {
	const op = "segments"
	err = s.do(ctx, op, func() (err error) {
		if _, ok := s.partition(id); !ok {
			return tiers.E(tiers.UnknownTopicOrPartition, op, id.String(), "there is no such partition")
		}
		out = s.selectSegments(func(r tiers.RemoteSegment) bool { return r.Partition == id && r.Gen == gen })
		return nil
	})
	return out, err
}

func (s *Store) selectSegments(keep func(tiers.RemoteSegment) bool) (out []tiers.RemoteSegment) {
	for _, r := range s.segments {
		if keep(r) {
			out = append(out, control.CloneSegment(r))
		}
	}
	slices.SortFunc(out, control.CompareSegments)
	return out
}

// row returns a segment's row, nil if there is none.
func (s *Store) row(id tiers.SegmentID) *tiers.RemoteSegment {
	if r, ok := s.segments[id]; ok {
		return &r
	}
	return nil
}

// CopyStarted adds a row.
func (s *Store) CopyStarted(ctx context.Context, f partition.Fence, seg tiers.RemoteSegment) error {
	const op = "start copy"
	return s.do(ctx, op, func() (err error) {
		p, err := s.fence(op, f)
		if err != nil {
			return err
		}
		r, write, err := control.StartCopy(f, p.Leader, s.o.Now(), s.row(seg.ID), seg)
		if err == nil && write {
			s.segments[r.ID] = r
		}
		return err
	})
}

// CopyFinished stores the facts of a copy.
func (s *Store) CopyFinished(ctx context.Context, f partition.Fence, seg tiers.RemoteSegment) error {
	const op = "finish copy"
	return s.do(ctx, op, func() (err error) {
		if _, err = s.fence(op, f); err != nil {
			return err
		}
		r, write, err := control.FinishCopy(f, s.row(seg.ID), seg)
		if err == nil && write {
			s.segments[r.ID] = r
		}
		return err
	})
}

// DeleteStarted condemns a segment.
func (s *Store) DeleteStarted(ctx context.Context, f partition.Fence, id tiers.SegmentID) error {
	const op = "start delete"
	return s.do(ctx, op, func() (err error) {
		if _, err = s.fence(op, f); err != nil {
			return err
		}
		row := s.row(id)
		write, err := control.StartDelete(f, id, row)
		if err == nil && write {
			row.State = tiers.DeleteStarted
			s.segments[id] = *row
		}
		return err
	})
}

// DeleteFinished removes a row.
func (s *Store) DeleteFinished(ctx context.Context, f partition.Fence, id tiers.SegmentID) error {
	const op = "finish delete"
	return s.do(ctx, op, func() (err error) {
		if _, err = s.fence(op, f); err != nil {
			return err
		}
		write, err := control.FinishDelete(f, id, s.row(id))
		if err == nil && write {
			delete(s.segments, id)
		}
		return err
	})
}

func (s *Store) doomed(r tiers.RemoteSegment) bool {
	_, alive := s.topics[r.Partition.Topic]
	return !alive
}

// Doomed returns segments whose topic is gone.
func (s *Store) Doomed(ctx context.Context, limit int) (out []tiers.RemoteSegment, err error) {
	err = s.do(ctx, "doomed", func() (err error) {
		if err := control.CheckLimit(limit); err != nil {
			return err
		}
		out = s.selectSegments(s.doomed)
		out = out[:min(limit, len(out))]
		return nil
	})
	return out, err
}

// Buried removes rows of segments whose topic is gone.
func (s *Store) Buried(ctx context.Context, ses control.Session, ids ...tiers.SegmentID) error {
	const op = "bury"
	return s.do(ctx, op, func() (err error) {
		if err := s.session(op, ses); err != nil {
			return err
		}
		for _, id := range ids {
			if r := s.row(id); r != nil && !s.doomed(*r) {
				return control.NotDoomed(*r)
			}
		}
		for _, id := range ids {
			delete(s.segments, id)
		}
		return nil
	})
}
