package rebuild

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/remote"
)

// perTopic bounds the reads under way for one topic.
const perTopic = 16

// finding is one segment of which something is in the bucket or in the rows.
type finding struct {
	segment  tiers.RemoteSegment
	name     string             // topic name that the companion tells, for topics without an entry
	row      bool               // a row names it
	rowState tiers.SegmentState // of that row
	whole    bool               // both objects are there as they should be
	damaged  bool               // both are there, and one is not as it should be
	problem  string             // why not
	lineage  tiers.Lineage      // of the log below its end, from the companion
}

// topicFinds is what the bucket has of one topic.
type topicFinds struct {
	id       tiers.TopicID
	segments []*finding
	strays   []remote.Object // keys that are no segment's
}

// pair is the two objects of a segment as listed.
type pair struct {
	log, meta *remote.Object
}

// findTopic lists the topic and reads the companion of every segment: nothing is
// believed of a segment that is not in the bucket.
func findTopic(ctx context.Context, b remote.Bucket, id tiers.TopicID, rows []tiers.RemoteSegment) (*topicFinds, error) {
	out := &topicFinds{id: id}
	pairs, err := out.list(ctx, b)
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		f := &finding{segment: row, row: true, rowState: row.State}
		out.segments = append(out.segments, f)
	}
	known := make(map[tiers.SegmentID]bool, len(rows))
	for _, f := range out.segments {
		known[f.segment.ID] = true
	}
	for id, p := range pairs {
		if !known[id] {
			out.segments = append(out.segments, &finding{segment: p.key().Segment()})
		}
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(perTopic)
	for _, f := range out.segments {
		if f.rowState == tiers.DeleteStarted {
			continue // nobody reads it again
		}
		g.Go(func() error { return f.read(gctx, b, pairs[f.segment.ID]) })
	}
	return out, g.Wait()
}

// list pairs up the objects of the topic.
func (t *topicFinds) list(ctx context.Context, b remote.Bucket) (map[tiers.SegmentID]pair, error) {
	pairs := make(map[tiers.SegmentID]pair)
	for o, err := range b.List(ctx, remote.ListOptions{Prefix: remote.TopicPrefix(t.id)}) {
		if err != nil {
			return nil, err
		}
		k, err := remote.ParseKey(o.Key)
		if err != nil || k.Partition.Topic != t.id {
			t.strays = append(t.strays, o)
			continue
		}
		p := pairs[k.ID]
		if k.Meta {
			p.meta = &o
		} else {
			p.log = &o
		}
		pairs[k.ID] = p
	}
	return pairs, nil
}

// key is what the key of either object tells.
func (p pair) key() remote.SegmentName {
	o := p.log
	if o == nil {
		o = p.meta
	}
	k, _ := remote.ParseKey(o.Key) // it parsed when it was listed
	return k
}

// compare holds a row against the listing.
func (f *finding) compare(p pair) {
	switch {
	case p.log == nil && p.meta == nil:
		f.problem = "both objects are missing"
	case p.log == nil:
		f.problem = "the records object is missing"
	case p.meta == nil:
		f.problem = "the companion object is missing"
	case f.rowState == tiers.CopyFinished && p.log.Size != f.segment.Size:
		f.problem = fmt.Sprintf("the records object has %d bytes instead of %d", p.log.Size, f.segment.Size)
	case f.rowState == tiers.CopyFinished && p.meta.Size != f.segment.MetaSize:
		f.problem = fmt.Sprintf("the companion object has %d bytes instead of %d", p.meta.Size, f.segment.MetaSize)
	default:
		f.whole = true
	}
}

// read takes the facts from the companion and holds the records object against
// them. What is damaged is a finding, not an error.
func (f *finding) read(ctx context.Context, b remote.Bucket, p pair) error {
	if f.compare(p); !f.whole {
		return nil
	}
	f.whole, f.damaged = false, true
	if p.meta.Size > remote.MaxMetaSize {
		f.problem = fmt.Sprintf("the companion object has %d bytes", p.meta.Size)
		return nil
	}
	var meta *remote.SegmentMeta
	damage, err := remote.ReadSound(ctx, b, p.meta.Key, remote.MaxMetaSize, func(raw []byte) (err error) {
		meta, err = remote.DecodeMeta(raw)
		return err
	})
	if err != nil {
		return err
	}
	if damage != nil {
		f.problem = fmt.Sprintf("the companion does not decode: %v", damage)
		return nil
	}
	obj := *p.log
	if f.rowState != tiers.CopyFinished { // else the copier has looked at it
		if obj, err = b.Stat(ctx, p.log.Key); err != nil {
			return f.unreadable(err, "look at the records object")
		}
	}
	s := meta.Segment
	switch k := p.key(); {
	case s.ID != k.ID || s.Partition != k.Partition || s.Gen != k.Gen || s.Base != k.Base:
		f.problem = "the companion names another segment than its key"
	case s.Size != obj.Size:
		f.problem = fmt.Sprintf("the records object has %d bytes, its companion says %d", obj.Size, s.Size)
	case obj.HasCRC && obj.CRC32C != s.CRC32C:
		f.problem = "the records object has another checksum than its companion says"
	case f.rowState == tiers.CopyFinished && (s.CRC32C != f.segment.CRC32C || s.End != f.segment.End):
		f.problem = "the companion describes other records than the row"
	case s.Valid() != nil:
		f.problem = s.Valid().Error()
	default:
		s.State, s.MetaSize = tiers.CopyFinished, p.meta.Size
		f.segment, f.whole, f.damaged, f.lineage, f.name = s, true, false, meta.Lineage, meta.TopicName
	}
	return nil
}

// unreadable tells what is wrong with one object from a bucket that cannot be
// reached, which ends the run.
func (f *finding) unreadable(err error, what string) error {
	if errors.Is(err, remote.ErrNotFound) || errors.Is(err, remote.ErrChecksum) || errors.Is(err, remote.ErrRange) {
		f.problem = fmt.Sprintf("%s: %v", what, err)
		return nil
	}
	return err
}
