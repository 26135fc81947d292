package broker

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/remote"
)

// The orphan sweep finds objects that no row names: what is left of a copy whose
// clean-up failed too, or of a deletion that the store only said it did. Rows
// come first everywhere else (a row is there before its objects, and goes after
// them), so a key without a row is nobody's, if the rows can be trusted. A key is
// deleted only if all of this holds:
//
//   - it is exactly a key that a copy of ours could have written, so never a
//     neighbour's and never a stranger's;
//   - no row of its history has its segment id, in any state, in rows that were
//     read after the listing of its partition had ended well (report 104);
//   - it is a day old by the clock of the store, which agrees with ours;
//   - it was uploaded while this control plane was the one that kept the rows:
//     after it was made, rebuilt or took the bucket over;
//   - the claim, read right before, is ours.

const (
	orphanAge     = 24 * time.Hour
	clockTrust    = time.Hour // how far the clock of the store may be from ours
	sweepBatch    = 500       // keys per request to delete
	sweepPace     = 100 * time.Millisecond
	maxCandidates = 100_000 // of one partition; the rest waits for the next sweep
	maxNamed      = 100     // keys that a report names, of each kind
)

// SweepRequest says how to sweep.
type SweepRequest struct {
	DryRun bool // delete nothing
	// All takes keys too that were in the bucket before this control plane kept
	// its rows. Whoever asks has seen a report.
	All bool
}

// SweepReport is what a sweep has found.
type SweepReport struct {
	SweepRequest
	Began      time.Time
	Took       time.Duration
	Partitions int   // that were listed to their end
	Objects    int64 // that were listed

	Orphans Keys // that no row names, old enough, ours to delete
	Deleted int64
	Young   int64 // without a row and not a day old: perhaps a copy under way
	Unknown Keys  // without a row, from before this control plane kept its rows
	Foreign Keys  // below our prefix and not ours
	More    bool  // there are more orphans than one sweep takes
	Err     error // why it is not complete; nil if it is
}

// Keys counts objects and names the first of them.
type Keys struct {
	Count, Bytes int64
	First        []string
}

func (k *Keys) add(o remote.Object) {
	k.Count++
	k.Bytes += o.Size
	if len(k.First) < maxNamed {
		k.First = append(k.First, o.Key)
	}
}

// sweeps is what is known of the sweeps of this process.
type sweeps struct {
	turn chan struct{} // one token: one sweep at a time

	mu      sync.Mutex
	last    *SweepReport // the last that ended
	failing error        // of the last that was no dry run
	totals  SweepTotals
}

// SweepTotals add up since the start of the process.
type SweepTotals struct{ Found, Deleted, Foreign int64 }

// Swept returns the report of the last sweep, nil if there was none.
func (b *Broker) Swept() *SweepReport {
	b.sweeps.mu.Lock()
	defer b.sweeps.mu.Unlock()
	return b.sweeps.last
}

// SweepTotals returns what all sweeps together have found.
func (b *Broker) SweepTotals() SweepTotals {
	b.sweeps.mu.Lock()
	defer b.sweeps.mu.Unlock()
	return b.sweeps.totals
}

// Sweep looks through the bucket, one partition at a time, and deletes what is
// nobody's. A partition that cannot be listed to its end loses nothing and is in
// the report's Err; the others are swept all the same. The error is why there is
// no report: InvalidConfig without a bucket, Conflict while another sweep runs.
func (b *Broker) Sweep(ctx context.Context, r SweepRequest) (SweepReport, error) {
	const op = "sweep"
	if b.o.Cache == nil {
		return SweepReport{}, tiers.E(tiers.InvalidConfig, op, "this node", "it has no bucket")
	}
	if err := b.lost(op, "this node"); err != nil {
		return SweepReport{}, err
	}
	select {
	case b.sweeps.turn <- struct{}{}:
		defer func() { <-b.sweeps.turn }()
	default:
		return SweepReport{}, tiers.E(tiers.Conflict, op, "this node", "a sweep is under way: wait for its end")
	}
	w := &sweeper{b: b, bucket: b.o.Cache.Bucket(), rep: SweepReport{SweepRequest: r, Began: b.o.Now()}}
	w.fail(w.run(ctx))
	w.rep.Took = b.o.Now().Sub(w.rep.Began)
	w.rep.Err = errors.Join(w.errs...)
	b.noteSweep(w.rep)
	return w.rep, nil
}

func (b *Broker) noteSweep(r SweepReport) {
	b.sweeps.mu.Lock()
	defer b.sweeps.mu.Unlock()
	b.sweeps.last = &r
	t := &b.sweeps.totals
	t.Deleted += r.Deleted
	if !r.DryRun {
		b.sweeps.failing = r.Err
		t.Found += r.Orphans.Count
		t.Foreign = r.Foreign.Count
	}
}

// maxSweepErrors is how many partitions a sweep reports as failed before it gives
// up: the bucket is away then.
const maxSweepErrors = 10

// sweeper is one sweep. It belongs to one goroutine.
type sweeper struct {
	b      *Broker
	bucket remote.Bucket
	rep    SweepReport
	errs   []error
	oldest time.Time // keys that were written later are too young
	since  time.Time // keys that were written earlier are unknown
}

func (w *sweeper) fail(err error) {
	if err != nil {
		w.errs = append(w.errs, err)
	}
}

// run sweeps everything. Its error ends the sweep; those of single partitions do
// not.
func (w *sweeper) run(ctx context.Context) error {
	now, err := w.storeClock(ctx)
	if err != nil {
		return err
	}
	w.oldest = now.Add(-orphanAge)
	if s := w.b.o.RowsSince; !s.IsZero() {
		w.since = s.Add(clockTrust)
	}
	w.fail(w.selfTests(ctx))
	topics, err := w.below(ctx, remote.TopicsPrefix, func(prefix string) bool {
		_, err := remote.ParseTopicPrefix(prefix)
		return err == nil
	})
	if err != nil {
		return err
	}
	for _, topic := range topics {
		if err := w.topic(ctx, topic); err != nil {
			return err
		}
	}
	return nil
}

// storeClock asks for the store's time and refuses one that is not ours: ages
// could not be told.
func (w *sweeper) storeClock(ctx context.Context) (time.Time, error) {
	before := w.b.o.Now()
	at, err := remote.Clock(ctx, w.bucket)
	after := w.b.o.Now()
	switch {
	case err != nil:
		return at, err
	case at.Before(before.Add(-clockTrust)) || at.After(after.Add(clockTrust)):
		return at, tiers.E(tiers.Conflict, "sweep", w.bucket.String(),
			"the clock of the store says %s and this machine's %s: set the clocks; nothing was deleted", at.UTC().Format(time.RFC3339), after.UTC().Format(time.RFC3339))
	}
	return at, nil
}

// below lists the folders below a prefix that are of the given form. All else is
// foreign.
func (w *sweeper) below(ctx context.Context, prefix string, ours func(string) bool) ([]string, error) {
	var folders []string
	for o, err := range w.bucket.List(ctx, remote.ListOptions{Prefix: prefix, Delimiter: "/"}) {
		switch {
		case err != nil:
			return nil, w.unlisted(prefix, err)
		case o.IsPrefix && ours(o.Key):
			folders = append(folders, o.Key)
		default:
			w.rep.Foreign.add(o)
		}
	}
	return folders, nil
}

func (w *sweeper) unlisted(prefix string, err error) error {
	return tiers.E(tiers.RemoteUnavailable, "sweep", prefix, "%s could not be listed to its end, so nothing below it was deleted: %w", w.bucket, err)
}

var partitionFolder = regexp.MustCompile(`^topics/[0-9a-f]{32}/[0-9]{10}/$`)

// topic sweeps the partitions of a topic. Its error ends the sweep.
func (w *sweeper) topic(ctx context.Context, prefix string) error {
	partitions, err := w.below(ctx, prefix, partitionFolder.MatchString)
	w.fail(err)
	for _, p := range partitions {
		if err := w.hopeless(ctx); err != nil {
			return err
		}
		w.fail(w.partition(ctx, p))
	}
	return w.hopeless(ctx)
}

// hopeless is why there is no point in going on.
func (w *sweeper) hopeless(ctx context.Context) error {
	switch {
	case ctx.Err() != nil:
		return tiers.E(tiers.TimedOut, "sweep", w.bucket.String(), "it was broken off: %w", context.Cause(ctx))
	case w.b.fenced.Load() != nil || len(w.errs) >= maxSweepErrors:
		return tiers.E(tiers.RemoteUnavailable, "sweep", w.bucket.String(), "it was given up after %d errors", len(w.errs))
	}
	return nil
}

// partition lists a partition and deletes what is nobody's.
func (w *sweeper) partition(ctx context.Context, prefix string) error {
	f := finding{sweeper: w, rows: rowsOf{w.b, map[tiers.HistoryGen]map[tiers.SegmentID]bool{}}}
	for o, err := range w.bucket.List(ctx, remote.ListOptions{Prefix: prefix}) {
		if err != nil {
			return w.unlisted(prefix, err)
		}
		if err := f.see(ctx, o); err != nil {
			return err
		}
	}
	w.rep.Partitions++
	// The listing is over: a key that was in it and has no row now is nobody's.
	f.rows = rowsOf{w.b, map[tiers.HistoryGen]map[tiers.SegmentID]bool{}}
	var orphans []string
	for _, c := range f.candidates {
		named, err := f.rows.name(ctx, c.name)
		switch {
		case err != nil:
			return err
		case !named:
			w.rep.Orphans.add(c.Object)
			orphans = append(orphans, c.Key)
		}
	}
	return w.delete(ctx, orphans)
}

// finding is what a partition's listing has shown.
type finding struct {
	*sweeper
	rows       rowsOf
	candidates []candidate
}

// candidate is a key without a row, old enough and ours.
type candidate struct {
	remote.Object
	name remote.SegmentName
}

func (f *finding) see(ctx context.Context, o remote.Object) error {
	f.rep.Objects++
	name, bad := remote.ParseKey(o.Key)
	if bad != nil {
		f.rep.Foreign.add(o)
		return nil //nolint:nilerr // a stranger's object is a finding, not a failure
	}
	named, err := f.rows.name(ctx, name)
	switch {
	case err != nil:
		return err
	case named:
	case o.Modified.IsZero() || !o.Modified.Before(f.oldest):
		f.rep.Young++
	case o.Modified.Before(f.since) && !f.rep.All:
		f.rep.Unknown.add(o)
	case len(f.candidates) == maxCandidates:
		f.rep.More = true
	default:
		f.candidates = append(f.candidates, candidate{o, name})
	}
	return nil
}

// rowsOf are the segment ids that rows of a partition have, as of the first
// question after a history.
type rowsOf struct {
	b    *Broker
	gens map[tiers.HistoryGen]map[tiers.SegmentID]bool
}

// name reports whether a row has the segment, in whatever state. Ids are unique
// for ever, so the id alone decides: a row may say less of its key than it could.
func (r rowsOf) name(ctx context.Context, n remote.SegmentName) (bool, error) {
	ids, ok := r.gens[n.Gen]
	if !ok {
		rows, err := r.read(ctx, n.Partition, n.Gen)
		if err != nil {
			return false, tiers.E(tiers.Other, "sweep", n.Partition.String(), "read its rows: %w", err)
		}
		ids = make(map[tiers.SegmentID]bool, len(rows))
		for _, row := range rows {
			ids[row.ID] = true
		}
		r.gens[n.Gen] = ids
	}
	return ids[n.ID], nil
}

// read returns the rows of a history. Those of a topic that is gone are the doomed
// ones.
func (r rowsOf) read(ctx context.Context, id tiers.PartitionID, gen tiers.HistoryGen) ([]tiers.RemoteSegment, error) {
	rows, err := r.b.o.Store.Segments(ctx, id, gen)
	if tiers.KindOf(err) != tiers.UnknownTopicOrPartition {
		return rows, err
	}
	const all = 1 << 30
	return r.b.o.Store.Doomed(ctx, all)
}

// selfTestKey is a key of a self-test, of a start or of doctor, which removes its
// objects itself unless it is cut off.
var selfTestKey = regexp.MustCompile(`^` + regexp.QuoteMeta(remote.SelfTestPrefix) + `(doctor-)?[A-Z2-7]{26,}/[a-z0-9-]+$`)

// selfTests removes what self-tests have left.
func (w *sweeper) selfTests(ctx context.Context) error {
	var left []string
	for o, err := range w.bucket.List(ctx, remote.ListOptions{Prefix: remote.SelfTestPrefix}) {
		if err != nil {
			return w.unlisted(remote.SelfTestPrefix, err)
		}
		if selfTestKey.MatchString(o.Key) && o.Modified.Before(w.oldest) && len(left) < maxCandidates {
			left = append(left, o.Key)
			w.rep.Orphans.add(o)
		}
	}
	return w.delete(ctx, left)
}

// String is the report in one line.
func (r SweepReport) String() string {
	parts := []string{fmt.Sprintf("%d orphans (%d bytes) in %d objects of %d partitions, %d deleted, %d too young, %d of before, %d foreign",
		r.Orphans.Count, r.Orphans.Bytes, r.Objects, r.Partitions, r.Deleted, r.Young, r.Unknown.Count, r.Foreign.Count)}
	if r.DryRun {
		parts = append(parts, "dry run")
	}
	if r.Err != nil {
		parts = append(parts, "not complete: "+r.Err.Error())
	}
	return strings.Join(parts, "; ")
}
