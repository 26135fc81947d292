package model

import (
	"context"
	"maps"
	"slices"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
)

// CommitOffsets stores offsets, all or none.
func (s *Store) CommitOffsets(ctx context.Context, ses control.Session, cs []control.OffsetCommit) error {
	const op = "commit offsets"
	return s.do(ctx, op, func() (err error) {
		if err := s.session(op, ses); err != nil {
			return err
		}
		for _, c := range cs {
			row, ok := s.partition(c.Partition)
			if err := control.CheckCommitOf(op, c, row, ok); err != nil {
				return err
			}
		}
		for _, c := range cs {
			if c.At.IsZero() {
				c.At = s.o.Now()
			}
			c.At = control.Instant(c.At)
			s.offsets[offsetKey{c.Group, c.Partition, c.Gen}] = c
		}
		return nil
	})
}

// current reports whether c belongs to the history that its partition has now.
func (s *Store) current(c control.OffsetCommit) bool {
	p, ok := s.partition(c.Partition)
	return ok && p.Gen == c.Gen
}

// Offsets returns the offsets of a group.
func (s *Store) Offsets(ctx context.Context, group string) (out []control.OffsetCommit, err error) {
	err = s.do(ctx, "offsets", func() (err error) {
		for _, c := range s.offsets {
			if c.Group == group && s.current(c) {
				out = append(out, c)
			}
		}
		slices.SortFunc(out, control.CompareOffsets)
		return nil
	})
	return out, err
}

// DeleteOffsets forgets offsets of a group.
func (s *Store) DeleteOffsets(ctx context.Context, ses control.Session, group string, ps []tiers.PartitionID) error {
	const op = "delete offsets"
	return s.do(ctx, op, func() (err error) {
		if err := s.session(op, ses); err != nil {
			return err
		}
		maps.DeleteFunc(s.offsets, func(k offsetKey, _ control.OffsetCommit) bool {
			return k.group == group && (len(ps) == 0 || slices.Contains(ps, k.partition))
		})
		return nil
	})
}

// Groups lists the groups that have offsets.
func (s *Store) Groups(ctx context.Context) (out []string, err error) {
	err = s.do(ctx, "groups", func() (err error) {
		seen := map[string]bool{}
		for _, c := range s.offsets {
			if s.current(c) {
				seen[c.Group] = true
			}
		}
		out = slices.Sorted(maps.Keys(seen))
		return nil
	})
	return out, err
}
