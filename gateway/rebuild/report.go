package rebuild

import (
	"context"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"text/tabwriter"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/remote"
)

// Report is what a rebuild found and did. It marshals to JSON; arrays are never
// null in it.
type Report struct {
	Bucket  string                `json:"bucket"`
	Cluster string                `json:"cluster"`
	DryRun  bool                  `json:"dry_run"`
	Holder  *control.ClaimRecord  `json:"holder"` // who held the bucket; null if nobody did
	Journal control.JournalReport `json:"journal"`

	Partitions []PartitionReport `json:"partitions"`
	Orphans    []Object          `json:"orphans"` // objects that belong to nothing; they stay
	Offsets    []OffsetReport    `json:"clamped_offsets"`
	Restored   int               `json:"restored_offsets"`
	Notes      []string          `json:"notes"`

	Lists   int64   `json:"list_requests"`
	Gets    int64   `json:"get_requests"`
	Stats   int64   `json:"stat_requests"`
	Seconds float64 `json:"seconds"`
}

// PartitionReport is what is left of one partition.
type PartitionReport struct {
	Topic    string            `json:"topic"`
	ID       tiers.TopicID     `json:"topic_id"`
	Index    int32             `json:"partition"`
	LogStart tiers.Offset      `json:"log_start"`
	LogEnd   tiers.Offset      `json:"log_end"`
	Epoch    tiers.LeaderEpoch `json:"leader_epoch"`
	Segments int               `json:"segments"`
	Adopted  int               `json:"adopted"` // of these, named by no row: copied after the snapshot
	Bytes    int64             `json:"bytes"`
	Doomed   int               `json:"deleting"` // segments of which whatever is left is deleted once the node serves
	Gaps     []Gap             `json:"gaps"`
	Problems []Problem         `json:"problems"` // segments that are missing, damaged, or overlap
}

// Gap is a range of offsets that no object covers.
type Gap struct {
	Start tiers.Offset `json:"start"`
	End   tiers.Offset `json:"end"`
}

// Problem is a segment that is not served.
type Problem struct {
	Segment tiers.SegmentID `json:"segment"`
	Base    tiers.Offset    `json:"base"`
	End     tiers.Offset    `json:"end"`
	What    string          `json:"what"`
	Loss    bool            `json:"loss"` // records that had been copied are not served
}

// Object is an object in the bucket.
type Object struct {
	Key   string `json:"key"`
	Bytes int64  `json:"bytes"`
	Why   string `json:"why"`
}

// OffsetReport is a committed offset beyond the end of what came back. It was
// set to that end, so the group neither fails nor skips records that will get the
// offsets in between.
type OffsetReport struct {
	Group string       `json:"group"`
	Topic string       `json:"topic"`
	Index int32        `json:"partition"`
	Was   tiers.Offset `json:"was"`
	Is    tiers.Offset `json:"is"`
}

// Note adds a line of text to the report.
func (r *Report) Note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

func (r *Report) orphan(key string, size int64, why string) {
	r.Orphans = append(r.Orphans, Object{key, size, why})
}

// Whole reports whether everything that had been copied came back.
func (r *Report) Whole() bool {
	for _, p := range r.Partitions {
		if len(p.Gaps) > 0 || slices.ContainsFunc(p.Problems, func(q Problem) bool { return q.Loss }) {
			return false
		}
	}
	return len(r.Journal.Damaged) == 0 && len(r.Journal.Missing) == 0
}

// Records counts the offsets that came back: records, plus what compaction or
// aborted transactions left as holes.
func (p PartitionReport) Records() int64 {
	n := int64(p.LogEnd - p.LogStart)
	for _, g := range p.Gaps {
		n -= int64(g.End - g.Start)
	}
	return n
}

// WriteTo prints the report for people.
func (r *Report) WriteTo(w io.Writer) (int64, error) {
	var b strings.Builder
	r.head(&b)
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "topic\tpartition\tlog start\tlog end\tepoch\tsegments\tadopted\tbytes\tdeleting\tgaps\tproblems")
	var segments, adopted int
	var bytes, records int64
	for _, p := range r.Partitions {
		fmt.Fprintf(tw, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n",
			p.Topic, p.Index, p.LogStart, p.LogEnd, p.Epoch, p.Segments, p.Adopted, p.Bytes, p.Doomed, len(p.Gaps), len(p.Problems))
		segments, adopted, bytes, records = segments+p.Segments, adopted+p.Adopted, bytes+p.Bytes, records+p.Records()
	}
	if err := tw.Flush(); err != nil {
		return 0, err
	}
	fmt.Fprintf(&b, "%d partitions, %d segments (%d adopted), %d offsets, %d bytes, %d committed offsets\n",
		len(r.Partitions), segments, adopted, records, bytes, r.Restored)
	r.details(&b)
	fmt.Fprintf(&b, "%d LIST, %d GET, %d HEAD requests in %.2f s\n", r.Lists, r.Gets, r.Stats, r.Seconds)
	n, err := io.WriteString(w, b.String())
	return int64(n), err
}

func (r *Report) head(b *strings.Builder) {
	what := "rebuilt"
	if r.DryRun {
		what = "dry run, nothing was changed: would rebuild"
	}
	fmt.Fprintf(b, "%s cluster %s from %s\n", what, r.Cluster, r.Bucket)
	if h := r.Holder; h != nil {
		state := "it had not released the bucket and is fenced from now on"
		if h.Released {
			state = "it had stopped cleanly"
		}
		if r.DryRun && !h.Released {
			state = "it has not released the bucket and may be running"
		}
		fmt.Fprintf(b, "the bucket was held by node %d since %s (generation %d): %s\n", h.Node, stamp(h.At), h.Generation, state)
	}
	if r.Journal.Snapshot == "" {
		fmt.Fprintln(b, "no snapshot of the control plane could be read")
	} else {
		fmt.Fprintf(b, "snapshot %s of %s, then %d changes of topics and %d log starts\n", r.Journal.Snapshot, stamp(r.Journal.At), r.Journal.Changes, r.Journal.LogStarts)
	}
	for _, d := range r.Journal.Damaged {
		fmt.Fprintf(b, "damaged: %s\n", d)
	}
	for _, d := range r.Journal.Ignored {
		fmt.Fprintf(b, "ignored, written by a node that had been replaced: %s\n", d)
	}
	if n := len(r.Journal.Missing); n > 0 {
		fmt.Fprintf(b, "missing: %d changes from revision %d to %d\n", n, r.Journal.Missing[0], r.Journal.Missing[n-1])
	}
}

func (r *Report) details(b *strings.Builder) {
	for _, p := range r.Partitions {
		for _, g := range p.Gaps {
			fmt.Fprintf(b, "gap: %s-%d has no object for offsets [%d,%d)\n", p.Topic, p.Index, g.Start, g.End)
		}
		for _, q := range p.Problems {
			what := "not needed"
			if q.Loss {
				what = "not served"
			}
			fmt.Fprintf(b, "%s: %s-%d [%d,%d) %s: %s\n", what, p.Topic, p.Index, q.Base, q.End, q.Segment, q.What)
		}
	}
	for _, o := range r.Offsets {
		fmt.Fprintf(b, "group %s: offset of %s-%d set from %d to the end %d\n", o.Group, o.Topic, o.Index, o.Was, o.Is)
	}
	for _, o := range r.Orphans {
		fmt.Fprintf(b, "orphan: %s (%d bytes): %s\n", o.Key, o.Bytes, o.Why)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(b, "note: %s\n", n)
	}
}

// counted is a bucket that counts requests.
type counted struct {
	remote.Bucket
	lists, gets, stats atomic.Int64
}

func (c *counted) List(ctx context.Context, o remote.ListOptions) iter.Seq2[remote.Object, error] {
	c.lists.Add(1)
	return c.Bucket.List(ctx, o)
}

func (c *counted) Get(ctx context.Context, key string, r remote.Range) (io.ReadCloser, remote.Object, error) {
	c.gets.Add(1)
	return c.Bucket.Get(ctx, key, r)
}

func (c *counted) ReadAt(ctx context.Context, key string, dst []byte, off int64) (int, error) {
	c.gets.Add(1)
	return c.Bucket.ReadAt(ctx, key, dst, off)
}

func (c *counted) Stat(ctx context.Context, key string) (remote.Object, error) {
	c.stats.Add(1)
	return c.Bucket.Stat(ctx, key)
}
