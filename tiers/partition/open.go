package partition

// Open: the rows of the remote tier first, then the disk, then the two are
// compared. The remote tier's word counts where the disk has lost something; the
// disk's where the remote tier holds what was discarded.

import (
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"math/rand/v2"
	"path"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/strandline-io/strandline/remoteindex"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/local"
	"github.com/strandline-io/strandline/tiers/remote"
)

// defaultQueue is what QueueBytes is if it is not set.
const defaultQueue = 32 << 20

func newOwner(id Identity, c Config, d Deps) *Owner {
	size := d.QueueBytes
	if size <= 0 {
		size = defaultQueue
	}
	o := &Owner{
		id: id, deps: d, place: id.Name.String(), room: semaphore.NewWeighted(size), roomSize: size,
		appends: make(chan *appendCall), mail: make(chan letter), outcomes: make(chan finished, maxJobs),
		fence: make(chan struct{}), closing: make(chan struct{}), done: make(chan struct{}),
	}
	o.config.Store(&c)
	return o
}

// openState does all of Open but starting the loop.
func openState(ctx context.Context, id Identity, c Config, d Deps) (*state, error) {
	s := newState(id, c, d)
	if err := c.check(s.place); err != nil {
		return nil, err
	}
	rows, err := d.Registry.Segments(ctx, id.ID, id.Gen)
	if err != nil {
		return nil, tiers.E(tiers.Other, "open", s.place, "read the rows of the remote segments: %w", err)
	}
	s.onRows(rows)
	opening := opening{ctx, d}
	if err := s.openLocal(opening); err != nil {
		return nil, err
	}
	if err := s.reconcile(opening); err != nil {
		return nil, errors.Join(err, s.local.Close())
	}
	return s, nil
}

// checkAcknowledged refuses a log that has lost what this process promised. If the
// loss is accepted it goes on behind the offsets that were acknowledged: whoever
// has read them would take other records under the same offsets, in the same
// leader epoch, for those.
func (s *state) checkAcknowledged(acked tiers.Offset, acceptLoss bool) error {
	end := s.local.LogEnd()
	if end >= acked {
		return nil
	}
	if !acceptLoss {
		return tiers.E(tiers.StorageFailed, "open", s.place,
			"ACKNOWLEDGED RECORDS ARE GONE: the log ends at %d and offsets up to %d were acknowledged; "+
				"look for a copy of the disk first; `strandline topic reopen --accept-loss` goes on at %d without offsets [%d,%d)", end, acked, acked, end, acked)
	}
	s.log.Error("ACKNOWLEDGED RECORDS ARE GONE, which was accepted: the log goes on behind them", "from", end, "to", acked)
	if err := s.local.SkipTo(acked); err != nil {
		return tiers.E(tiers.StorageFailed, "open", s.place, "go on at %d: %w", acked, err)
	}
	return s.raiseStart() // of a log that had no record, nothing may be left below
}

// opening is what only Open needs.
type opening struct {
	ctx  context.Context
	deps Deps
}

func newState(id Identity, c Config, d Deps) *state {
	s := &state{
		id: id, place: id.Name.String(), cluster: d.Cluster, bucket: d.Cache != nil,
		now: d.Now, newID: d.NewID, jitter: d.Jitter, log: d.Log.With("partition", id.Name.String()), metrics: d.Metrics,
		config: c, history: newHistory(d.NewID()), incarnation: 1, buffers: &d.Disk.Buffers,
	}
	s.retain.every = d.RetainEvery
	if s.retain.every <= 0 {
		s.retain.every = retainEvery
	}
	if s.jitter == nil {
		s.jitter = someOf
	}
	s.retain.at = s.now().Add(s.jitter(s.retain.every)) // not all partitions of a node at once
	return s
}

// newHistory makes a token that this process has not used before (H7): segment
// ids are never reused, so what is drawn like one is not either.
func newHistory(id tiers.SegmentID) tiers.HistoryID {
	return tiers.HistoryID(binary.BigEndian.Uint64(id[:8]) ^ binary.BigEndian.Uint64(id[8:]))
}

// someOf is between half of d and all of it.
func someOf(d time.Duration) time.Duration {
	return d/2 + time.Duration(rand.Int64N(int64(d/2)+1)) //nolint:gosec // it spreads retries, nothing depends on it
}

// openLocal opens the local log; an empty one begins where the remote cover ends
// (reports 021 and 057).
func (s *state) openLocal(o opening) error {
	empty, err := hasNoSegments(o.deps.FS, o.deps.Dir, s.id.Gen)
	if err != nil {
		return tiers.E(tiers.StorageFailed, "open", s.place, "%w", err)
	}
	start := local.Start{LogStart: s.id.LogStart, At: s.id.LogStart}
	if empty {
		if start, err = s.startFromRemote(o, start); err != nil {
			return err
		}
	}
	log, found, err := local.Open(local.Options{
		FS: o.deps.FS, Dir: o.deps.Dir, ID: s.id.ID, Name: s.id.Name, Gen: s.id.Gen, Config: s.config.Local,
		Disk: o.deps.Disk, Empty: start, Now: s.now, Log: s.log,
		Earlier: func(first tiers.Offset) (tiers.Lineage, error) { return s.earlier(o, first) },
		Known:   s.known,
	})
	if err != nil {
		kind := tiers.KindOf(err)
		if kind == tiers.Other {
			kind = tiers.StorageFailed
		}
		return tiers.E(kind, "open", s.place, "%w", err)
	}
	s.local = log
	s.tellRecovery(found)
	return nil
}

func (s *state) tellRecovery(r local.Recovery) {
	switch {
	case r.TruncatedAt != tiers.NoOffset:
		s.log.Warn("the local log had a torn or damaged tail, which was cut", "at", r.TruncatedAt, "bytes", r.TruncatedBytes, "lost_segments", r.LostSegments)
	case !r.Clean:
		s.log.Info("the local log was not closed cleanly and was checked", "segments", r.Scanned, "bytes", r.Bytes, "rebuilt_indexes", r.RebuiltIndexes)
	}
}

// hasNoSegments reports whether no segment of the history is on disk.
func hasNoSegments(f fsys.FS, dir string, gen tiers.HistoryGen) (bool, error) {
	entries, err := f.ReadDir(path.Join(dir, "h"+strconv.Itoa(int(gen))))
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".log") {
			return false, nil
		}
	}
	return true, err
}

// startFromRemote is where a log begins whose disk is empty: at the end of the
// remote cover, never at 0 while rows say that there are records.
func (s *state) startFromRemote(o opening, start local.Start) (local.Start, error) {
	tail, ok := tailOf(s.index, noLimit)
	if !ok || tail.End <= start.LogStart {
		return start, nil
	}
	meta, err := s.tailMeta(o, tail, "the local log is empty, so it is not known where to go on")
	if err != nil {
		return start, err
	}
	begin, err := s.contiguous(meta.Lineage, start.LogStart, tail.End)
	if err != nil {
		return start, err
	}
	s.log.Warn("the local log is empty: it starts at the end of what the bucket holds", "log_start", begin, "log_end", tail.End)
	return local.Start{LogStart: begin, At: tail.End, Lineage: meta.Lineage.TruncateStart(begin), Producers: meta.Producers}, nil
}

// earlier is the lineage of the log below first, where the disk begins, of which
// the disk knows no more. The companion of the last segment that begins there
// tells; empty if there is none, so nothing below is in the bucket either.
func (s *state) earlier(o opening, first tiers.Offset) (tiers.Lineage, error) {
	tail, ok := tailOf(s.index, first)
	if !ok || s.refused != nil {
		return nil, s.refused
	}
	meta, err := s.tailMeta(o, tail, "the leader epochs of what is in the bucket only are lost on disk, and without them it cannot be read")
	if err != nil {
		return nil, err
	}
	return meta.Lineage, nil
}

// known is the log start of the partition's row, and where the first finished
// segment begins that reaches beyond it.
func (s *state) known() (start, kept tiers.Offset) {
	kept = tiers.NoOffset
	for row := range s.index.All() {
		if row.State == tiers.CopyFinished && row.End > s.id.LogStart && (kept == tiers.NoOffset || row.Base < kept) {
			kept = row.Base
		}
	}
	return s.id.LogStart, kept
}

// tailOf is the finished segment that knows the newest of the log, of those that
// begin below limit: of the newest leader epoch the one that ends last (R4).
func tailOf(x *remoteindex.Index, limit tiers.Offset) (tail tiers.RemoteSegment, ok bool) {
	for row := range x.All() {
		if row.State != tiers.CopyFinished || row.Base >= limit {
			continue
		}
		newer := row.Epochs.Last() > tail.Epochs.Last() || row.Epochs.Last() == tail.Epochs.Last() && row.End > tail.End
		if !ok || newer {
			tail, ok = row, true
		}
	}
	return tail, ok
}

// tailMeta reads the companion of tail; why says what is at stake.
func (s *state) tailMeta(o opening, tail tiers.RemoteSegment, why string) (*remote.SegmentMeta, error) {
	if o.deps.Cache == nil {
		return nil, tiers.E(tiers.RemoteUnavailable, "open", s.place,
			"records up to offset %d are in a bucket and this node was started without one: set bucket", tail.End)
	}
	meta, err := o.deps.Cache.Meta(o.ctx, tail)
	if err != nil {
		return nil, tiers.E(remoteKind(err), "open", s.place, "%s: the companion of segment [%d,%d) cannot be read: %w", why, tail.Base, tail.End, err)
	}
	return meta, nil
}

// contiguous returns the log start, at least from, at which the remote cover up to
// end begins. A cover with a hole is an error: records are missing, and only an
// operator may decide to go on without them.
func (s *state) contiguous(l tiers.Lineage, from, end tiers.Offset) (tiers.Offset, error) {
	truth := remoteindex.Truth{Lineage: l, Start: from, Bound: end}
	if _, where := s.index.Find(from, truth); where != remoteindex.Covered {
		if s.refused != nil {
			return from, s.refused
		}
		first, ok := s.index.Next(from, truth)
		if !ok {
			return from, tiers.E(tiers.StorageFailed, "open", s.place, "no remote segment fits the lineage %s of the last one", l)
		}
		truth.Start = first.From // what was below is expired (report 057)
	}
	if c := s.index.Coverage(truth); c < end {
		next, _ := s.index.Next(c, truth)
		return from, tiers.E(tiers.StorageFailed, "open", s.place,
			"the local log is gone and the bucket has no segment for offsets [%d,%d): bring the local log back or restore the objects; to go on without them, run strandline rebuild into an empty directory, which reports the gap",
			c, next.From)
	}
	return truth.Start, nil
}

// reconcile brings the local log in line with the rows of both the partition and
// its segments, and records the new leader epoch.
func (s *state) reconcile(o opening) error {
	if err := s.catchUp(o); err != nil {
		return err
	}
	if err := s.distrust(); err != nil {
		return err
	}
	if err := s.raiseStart(); err != nil {
		return err
	}
	if err := s.checkAcknowledged(o.deps.Acknowledged, o.deps.AcceptLoss); err != nil {
		return err
	}
	last := s.local.Lineage().Last()
	if last > s.id.Epoch {
		return tiers.E(tiers.StaleFence, "open", s.place, "the log has records of leader epoch %d, this node was made leader in %d", last, s.id.Epoch)
	}
	if err := s.local.Assign(s.id.Epoch, s.local.LogEnd()); err != nil { // T6
		return tiers.E(tiers.StorageFailed, "open", s.place, "record leader epoch %d: %w", s.id.Epoch, err)
	}
	s.committed = s.local.LogEnd() // what is served after a recovery was synced first (report 027)
	return nil
}

// catchUp starts the local log anew at the end of the remote cover if it has lost
// its tail: what the bucket holds was acknowledged, so nothing may be appended in
// its middle.
func (s *state) catchUp(o opening) error {
	tail, ok := tailOf(s.index, noLimit)
	end := s.local.LogEnd()
	if !ok || tail.End <= max(end, s.id.LogStart) || s.discarded(tail, end) { // what lies below the log start is nobody's
		return nil
	}
	meta, err := s.tailMeta(o, tail, "the local log is behind the bucket, so it is not known where to go on")
	if err != nil {
		return err
	}
	logStart := max(s.local.LogStart(), s.id.LogStart)
	begin, err := s.contiguous(meta.Lineage, logStart, tail.End)
	if err != nil {
		return err
	}
	if begin > logStart && s.local.LocalLogStart() < begin && end > logStart {
		return tiers.E(tiers.StorageFailed, "open", s.place,
			"the local log ends at %d, the bucket goes on to %d but holds nothing below %d: bring the local log's tail back or restore the objects; to go on without them, run strandline rebuild into an empty directory, which reports the gap", end, tail.End, begin)
	}
	s.log.Warn("THE LOCAL LOG HAS LOST ITS TAIL, which the bucket has: the local log starts anew at the end of what the bucket holds",
		"local_log_end", end, "remote_end", tail.End, "log_start", begin)
	s.incarnation++
	err = s.local.Restart(local.Start{LogStart: begin, At: tail.End, Lineage: meta.Lineage.TruncateStart(begin), Producers: meta.Producers})
	if err != nil {
		return tiers.E(tiers.StorageFailed, "open", s.place, "%w", err)
	}
	return nil
}

// discarded reports whether the local log went on in a newer leader epoch than
// that of tail, whose end is then history that never was (R14 hides it).
func (s *state) discarded(tail tiers.RemoteSegment, end tiers.Offset) bool {
	return end > s.local.LogStart() && s.local.Lineage().EpochFor(end-1) > tail.Epochs.Last()
}

// raiseStart moves the log start up to what the partition's row says, and past
// what is in no tier any more (report 057).
func (s *state) raiseStart() error {
	start := max(s.local.LogStart(), s.id.LogStart)
	if start > s.local.LogEnd() && s.id.LogStart <= s.local.LogEnd() {
		return tiers.E(tiers.StorageFailed, "open", s.place,
			"log-start-offset-checkpoint says that the log starts at %d, above its end at %d: the file is damaged; remove the partition's line", start, s.local.LogEnd())
	}
	if start > s.local.LogEnd() {
		s.log.Warn("the log starts above the end of the local log, which starts anew there", "log_start", start, "local_log_end", s.local.LogEnd())
		s.incarnation++
		if err := s.local.Restart(local.Start{LogStart: start, At: start}); err != nil {
			return tiers.E(tiers.StorageFailed, "open", s.place, "%w", err)
		}
		return nil
	}
	start, err := s.pastExpired(start)
	if err != nil {
		return err
	}
	if start > s.local.LogStart() {
		if err := s.local.RaiseLogStart(start); err != nil {
			return tiers.E(tiers.StorageFailed, "open", s.place, "%w", err)
		}
	}
	return nil
}

// pastExpired is start, or where the log goes on if what is there is in no tier.
// That may be concluded only from rows all of which are understood; the lineage is
// sound, or the log would not have been opened.
func (s *state) pastExpired(start tiers.Offset) (tiers.Offset, error) {
	from := s.local.LocalLogStart()
	truth := remoteindex.Truth{Lineage: s.local.Lineage(), Start: start, Bound: noLimit}
	if start >= from {
		return start, nil
	}
	if _, where := s.index.Find(start, truth); where == remoteindex.Covered {
		return start, nil
	}
	if s.refused != nil {
		return start, tiers.E(tiers.StorageFailed, "open", s.place, "the disk begins at %d, offset %d is in no tier that is understood, and the log start must not move: %w", from, start, s.refused)
	}
	if first, ok := s.index.Next(start, truth); ok {
		from = min(from, first.From)
	}
	s.log.Warn("the log starts later than the disk says: what was below is in no tier any more", "log_start", from)
	return from, nil
}
