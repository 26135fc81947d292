package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"github.com/strandline-io/strandline/gateway"
	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/gateway/control/sqlite"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/remote"
)

const (
	// uploads is how many objects of a made bucket are written at once.
	uploads = 16
	// recordsPerSegment is how many offsets a made segment covers.
	recordsPerSegment = 1000
)

// RebuildOptions say what bucket to make and rebuild from.
type RebuildOptions struct {
	Config         gateway.Config // Bucket is the one to fill: an empty prefix of its own
	Bucket         remote.Bucket  // nil: what Config.Bucket names
	Work           string         // folder for data directories; the caller removes it
	Segments       int
	Partitions     int
	CompanionBytes int // of each segment: its indexes
	// Known is the percentage of segments that the snapshot of the control plane
	// names. The others were copied after it and are found by listing.
	Known int
	Log   hclog.Logger
}

// Valid returns nil if the options make sense.
func (o *RebuildOptions) Valid() error {
	switch {
	case o.Segments < 1 || o.Partitions < 1:
		return errors.New("--segments and --partitions are at least 1")
	case o.Partitions > o.Segments:
		return fmt.Errorf("--partitions %d: each partition has at least one of the %d segments", o.Partitions, o.Segments)
	case o.CompanionBytes < 0 || o.CompanionBytes > remote.MaxMetaSize/2:
		return fmt.Errorf("--companion-bytes %d: at most %d", o.CompanionBytes, remote.MaxMetaSize/2)
	case o.Known < 0 || o.Known > 100:
		return fmt.Errorf("--known %d: it is a percentage", o.Known)
	}
	return nil
}

// RebuildReport is what rebuilding took.
type RebuildReport struct {
	Bench          string         `json:"bench"`
	Bucket         string         `json:"bucket"`
	Segments       int            `json:"segments"`
	Partitions     int            `json:"partitions"`
	CompanionBytes int            `json:"companion_bytes"`
	Known          int            `json:"known_segments"`
	MadeSeconds    float64        `json:"made_s"`
	Dry            *RebuildTiming `json:"dry_run,omitempty"`
	Real           *RebuildTiming `json:"rebuild,omitempty"`
	Interrupted    bool           `json:"interrupted,omitempty"`
}

// RebuildTiming is one rebuild.
type RebuildTiming struct {
	Seconds           float64 `json:"seconds"`
	SegmentsPerSecond float64 `json:"segments_per_s"`
	Lists             int64   `json:"list_requests"`
	Gets              int64   `json:"get_requests"`
	Stats             int64   `json:"stat_requests"`
	CPUSeconds        float64 `json:"cpu_s"`
}

// WriteTo prints the report for people.
func (r *RebuildReport) WriteTo(w io.Writer) (int64, error) {
	var b counter
	tw := tabwriter.NewWriter(io.MultiWriter(w, &b), 0, 0, 2, ' ', 0)
	fmt.Fprintf(tw, "rebuild from %s: %d segments in %d partitions, %d of them in the snapshot, companions of %d B; made in %.2f s\n",
		r.Bucket, r.Segments, r.Partitions, r.Known, r.CompanionBytes, r.MadeSeconds)
	for _, t := range []struct {
		name string
		*RebuildTiming
	}{{"dry run", r.Dry}, {"rebuild", r.Real}} {
		if t.RebuildTiming != nil {
			fmt.Fprintf(tw, "%s\t%.2f s\t%.0f segments/s\t%.2f CPU s\t%d LIST, %d GET, %d HEAD\n",
				t.name, t.Seconds, t.SegmentsPerSecond, t.CPUSeconds, t.Lists, t.Gets, t.Stats)
		}
	}
	if r.Interrupted {
		fmt.Fprintln(tw, "interrupted: this is what was measured until then")
	}
	err := tw.Flush()
	return int64(b), err
}

// counter counts what is written to it.
type counter int64

func (c *counter) Write(b []byte) (int, error) {
	*c += counter(len(b))
	return len(b), nil
}

// Rebuild makes a bucket, rebuilds from it and removes what it made. The report
// is of what was measured, also with an error.
func Rebuild(ctx context.Context, o RebuildOptions) (rep RebuildReport, err error) {
	rep = RebuildReport{
		Bench: "rebuild", Segments: o.Segments, Partitions: o.Partitions, CompanionBytes: o.CompanionBytes, Known: o.Segments * o.Known / 100,
	}
	b := o.Bucket
	if b == nil {
		if b, err = gateway.OpenBucket(ctx, o.Config); err != nil {
			return rep, err
		}
		defer func() { err = errors.Join(err, b.Close()) }()
	}
	b = remote.WithRetry(b, remote.RetryOptions{})
	rep.Bucket = b.String()
	if err := checkUnused(ctx, b); err != nil {
		return rep, err
	}
	defer func() { err = errors.Join(err, empty(ctx, b)) }()
	began := time.Now()
	err = o.make(ctx, b)
	rep.MadeSeconds = time.Since(began).Seconds()
	for _, run := range []struct {
		into **RebuildTiming
		dry  bool
	}{{&rep.Dry, true}, {&rep.Real, false}} {
		if err == nil {
			*run.into, err = o.time(ctx, b, run.dry)
		}
	}
	if ctx.Err() != nil {
		rep.Interrupted, err = true, nil
	}
	return rep, err
}

// checkUnused refuses a prefix that holds anything: it would be removed in the
// end.
func checkUnused(ctx context.Context, b remote.Bucket) error {
	for o, err := range b.List(ctx, remote.ListOptions{}) {
		if err != nil {
			return fmt.Errorf("look into %s: %w", b, err)
		}
		return refuse("%s is not empty (%s is there): give a prefix of its own", b, o.Key)
	}
	return nil
}

// empty removes everything below the prefix, also after an interrupt.
func empty(ctx context.Context, b remote.Bucket) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Minute)
	defer cancel()
	const batch = 1000
	var keys []string
	for o, err := range b.List(ctx, remote.ListOptions{}) {
		if err != nil {
			return fmt.Errorf("remove what was made in %s: %w", b, err)
		}
		keys = append(keys, o.Key)
	}
	for len(keys) > 0 {
		n := min(batch, len(keys))
		if err := b.Delete(ctx, keys[:n]...); err != nil {
			return fmt.Errorf("remove what was made in %s: %w", b, err)
		}
		keys = keys[n:]
	}
	return nil
}

// time rebuilds once.
func (o *RebuildOptions) time(ctx context.Context, b remote.Bucket, dry bool) (*RebuildTiming, error) {
	c := o.Config
	c.DataDir = filepath.Join(o.Work, "rebuilt")
	cpu := cpuSeconds()
	rep, err := gateway.Rebuild(ctx, c, gateway.RebuildDeps{DryRun: dry, Bucket: b, Log: o.Log})
	if err != nil {
		return nil, err
	}
	if !rep.Whole() {
		return nil, errors.New("the rebuild did not find everything that was made")
	}
	found := 0
	for _, p := range rep.Partitions {
		found += p.Segments
	}
	if found != o.Segments {
		return nil, fmt.Errorf("the rebuild found %d of %d segments", found, o.Segments)
	}
	return &RebuildTiming{
		Seconds: rep.Seconds, SegmentsPerSecond: over(float64(o.Segments), rep.Seconds),
		Lists: rep.Lists, Gets: rep.Gets, Stats: rep.Stats, CPUSeconds: cpuSeconds() - cpu,
	}, nil
}

// make fills the bucket with a cluster as a node leaves it behind: a claim, a
// snapshot, and segments.
func (o *RebuildOptions) make(ctx context.Context, b remote.Bucket) (err error) {
	first, err := o.store("made.db")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, first.Close()) }()
	session, err := first.OpenSession(ctx, 1)
	if err != nil {
		return err
	}
	topic, err := first.CreateTopic(ctx, session, control.NewTopic{Name: TopicPrefix, Partitions: int32(o.Partitions)})
	if err != nil {
		return err
	}
	st, err := first.Dump(ctx)
	if err != nil {
		return err
	}
	segments, err := o.segments(ctx, b, st.Cluster, topic)
	if err != nil {
		return err
	}
	st.Segments = segments[:o.Segments*o.Known/100]
	st.Sort()
	known, err := o.store("known.db")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, known.Close()) }()
	if err := known.Load(ctx, st); err != nil {
		return err
	}
	claim, err := control.AcquireClaim(ctx, b, control.ClaimOptions{Cluster: st.Cluster, Node: 1, Instance: uuid.NewString(), Now: time.Now, Log: o.Log})
	if err != nil {
		return err
	}
	return errors.Join(control.NewJournal(b, known, claim, o.Log).Snapshot(ctx), claim.Release(ctx))
}

func (o *RebuildOptions) store(name string) (*sqlite.Store, error) {
	return sqlite.Open(fsys.OS{}, filepath.Join(o.Work, name), sqlite.Options{})
}

// segments writes the objects of every segment, and returns their facts in an
// order in which each partition's come from its start on.
func (o *RebuildOptions) segments(ctx context.Context, b remote.Bucket, cluster string, t control.Topic) ([]tiers.RemoteSegment, error) {
	records := make([]byte, 4<<10)
	indexes := make([]byte, o.CompanionBytes)
	fill(records, FillRandom, 1)
	fill(indexes, FillRandom, 2)
	out := make([]tiers.RemoteSegment, o.Segments)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(uploads)
	for i := range out {
		g.Go(func() (err error) {
			out[i], err = o.segment(gctx, b, cluster, t, i, records, indexes)
			return err
		})
	}
	return out, g.Wait()
}

func (o *RebuildOptions) segment(ctx context.Context, b remote.Bucket, cluster string, t control.Topic, i int, records, indexes []byte) (tiers.RemoteSegment, error) {
	part := t.Partitions[i%o.Partitions]
	base := tiers.Offset(i/o.Partitions) * recordsPerSegment
	s := tiers.RemoteSegment{
		Partition: tiers.PartitionID{Topic: t.ID, Index: int32(i % o.Partitions)}, Gen: part.Gen,
		Base: base, End: base + recordsPerSegment, Epochs: tiers.Lineage{{Epoch: part.Epoch, Start: base}}, State: tiers.CopyFinished,
		MaxTimestamp: time.Now().UnixMilli(), Size: int64(len(records)), CRC32C: remote.CRC32C(records),
		CopierEpoch: part.Epoch, Copier: 1, CreatedAt: time.Now().UTC(),
	}
	if _, err := rand.Read(s.ID[:]); err != nil {
		return s, err
	}
	meta, err := remote.EncodeMeta(&remote.SegmentMeta{
		Cluster: cluster, TopicName: t.Name, Segment: s, ChunkCRC: []uint32{s.CRC32C}, OffsetIndex: indexes,
		Lineage: tiers.Lineage{{Epoch: part.Epoch, Start: 0}},
	})
	if err != nil {
		return s, err
	}
	s.MetaSize = int64(len(meta))
	if _, err := b.Put(ctx, remote.SegmentKey(s), remote.BytesBody(records), remote.PutOptions{}); err != nil {
		return s, err
	}
	_, err = b.Put(ctx, remote.MetaKey(s), remote.BytesBody(meta), remote.PutOptions{})
	return s, err
}
