package partition

// The rig: an owner on a file system in memory and a bucket in memory. A driven
// owner has no loop: the test takes its steps and runs its jobs, when, how often
// and in which order it likes.

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/batch"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/fsys/mem"
	"github.com/strandline-io/strandline/tiers/local"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

var topicID = tiers.TopicID{1, 2, 3}

const place = "orders-0"

// world is what outlives an owner.
type world struct {
	t      testing.TB
	fs     *mem.FS
	files  fsys.FS // fs, or a wrapper of it
	bucket *memory.Bucket
	rows   *rows
	cache  *remote.Cache
	disk   *local.Disk
	id     Identity
	config Config
	now    func() time.Time
	noise  *strings.Builder
	nextID uint64
	tweak  func(*Deps)
}

func newWorld(tb testing.TB) *world {
	tb.Helper()
	w := &world{
		t: tb, fs: mem.New(), bucket: memory.New(), rows: newRows(), now: time.Now, noise: &strings.Builder{},
		id: Identity{
			ID: tiers.PartitionID{Topic: topicID}, Name: tiers.TopicPartition{Topic: "orders"}, Gen: 1, Epoch: 1, Node: 7,
		},
		config: Config{
			Local: local.Config{SegmentBytes: 1 << 20, IndexBytes: 1 << 20, IndexInterval: 128},
			Ack:   AckFsync, MaxMessageBytes: 1 << 20, Remote: true,
		},
	}
	w.files = w.fs
	w.start()
	return w
}

// start is a process that starts: it opens disk and cache.
func (w *world) start() {
	w.t.Helper()
	disk, err := local.OpenDisk(w.files, "/data", hclog.NewNullLogger())
	if err != nil {
		w.t.Fatal(err)
	}
	w.startOn(disk)
}

func (w *world) startOn(disk *local.Disk) {
	w.disk = disk
	w.cache = remote.NewCache(w.bucket, remote.CacheOptions{})
	w.rows.epoch = w.id.Epoch
}

// stop is a process that ends in good order.
func (w *world) stop() {
	w.t.Helper()
	w.cache.Close()
	if err := w.disk.Close(); err != nil {
		w.t.Fatal(err)
	}
}

// crash is a process that starts on what is left of the files: f is KillCopy,
// SyncedCopy or CrashCopy of w.fs.
func (w *world) crash(f *mem.FS) {
	w.t.Helper()
	w.cache.Close()
	w.fs, w.files = f, f
	w.id.Epoch++
	w.start()
}

func (w *world) deps(s Scheduler) Deps {
	d := Deps{
		FS: w.files, Dir: "/data/orders-0", Disk: w.disk, Cache: w.cache, Registry: w.rows, Scheduler: s, Cluster: "test-cluster",
		Now: w.now, NewID: w.newID, Jitter: func(d time.Duration) time.Duration { return d },
		Log: hclog.New(&hclog.LoggerOptions{Output: &lockedWriter{to: w.noise}, Level: hclog.Warn, DisableTime: true}),
	}
	if w.tweak != nil {
		w.tweak(&d)
	}
	return d
}

type lockedWriter struct {
	mu sync.Mutex
	to *strings.Builder
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to.Write(p)
}

func (w *world) newID() (id tiers.SegmentID) {
	w.rows.mu.Lock()
	defer w.rows.mu.Unlock()
	w.nextID++
	binary.BigEndian.PutUint64(id[8:], w.nextID)
	return id
}

// open opens a running owner with a pool.
func (w *world) open() *Owner {
	w.t.Helper()
	return w.openOn(NewPool(2))
}

func (w *world) openOn(s Scheduler) *Owner {
	w.t.Helper()
	o, err := Open(w.t.Context(), w.id, w.config, w.deps(s))
	if err != nil {
		w.t.Fatal(err)
	}
	return o
}

func (w *world) close(o *Owner) {
	w.t.Helper()
	if err := o.Close(context.Background()); err != nil {
		w.t.Fatal(err)
	}
}

// driven is a state without a loop.
type driven struct {
	*Owner
	t    testing.TB
	s    *state
	jobs []job
}

func (w *world) drive() *driven {
	w.t.Helper()
	deps := w.deps(nil)
	s, err := openState(w.t.Context(), w.id, w.config, deps)
	if err != nil {
		w.t.Fatal(err)
	}
	d := &driven{Owner: newOwner(w.id, w.config, deps), t: w.t, s: s}
	d.settle()
	return d
}

// settle is what the loop does after a step.
func (d *driven) settle() {
	d.t.Helper()
	d.publish(d.s)
	if v := d.View(); v.Err == nil {
		if err := v.Valid(); err != nil {
			d.t.Fatal(err)
		}
	}
	d.s.onPlan()
	d.jobs = append(d.jobs, d.s.todo...)
	d.s.todo = nil
}

// step takes a step of the loop.
func (d *driven) step(f func(*state)) {
	d.t.Helper()
	f(d.s)
	d.settle()
}

// take removes the job at the point from those that wait.
func (d *driven) take(point string) job {
	d.t.Helper()
	i := slices.IndexFunc(d.jobs, func(j job) bool { return j.point().Name == point })
	if i < 0 {
		d.t.Fatalf("no job waits at %s, but %v", point, d.points())
	}
	j := d.jobs[i]
	d.jobs = slices.Delete(d.jobs, i, i+1)
	return j
}

func (d *driven) points() (names []string) {
	for _, j := range d.jobs {
		names = append(names, fmt.Sprintf("%s@%d", j.point().Name, j.point().Offset))
	}
	return names
}

// run runs the job at the point and brings it home.
func (d *driven) run(point string) {
	d.t.Helper()
	out := d.take(point).run(d.t.Context(), d.tools())
	d.step(out.on)
}

// runAll runs jobs until none waits.
func (d *driven) runAll() {
	d.t.Helper()
	for range 1000 {
		if len(d.jobs) == 0 {
			return
		}
		d.run(d.jobs[0].point().Name)
	}
	d.t.Fatalf("jobs without end: %v", d.points())
}

// append appends batches in one step, as a group.
func (d *driven) append(batches ...[]byte) []*appendCall {
	d.t.Helper()
	calls := make([]*appendCall, len(batches))
	for i, b := range batches {
		h, err := batch.Parse(b)
		if err != nil {
			d.t.Fatal(err)
		}
		calls[i] = &appendCall{data: b, header: h, done: make(chan struct{})}
	}
	d.step(func(s *state) { s.onAppend(calls) })
	return calls
}

// fill appends n batches of one record each, all of which must be taken.
func (d *driven) fill(n int) {
	d.t.Helper()
	for range n {
		c := d.append(one(fmt.Sprintf("record %d", d.View().LogEnd)))[0]
		if c.err != nil {
			d.t.Fatal(c.err)
		}
	}
}

func (d *driven) roll() {
	d.t.Helper()
	d.step(func(s *state) {
		if err := s.onRoll(); err != nil {
			d.t.Fatal(err)
		}
	})
}

// end closes a driven owner.
func (d *driven) end() {
	d.t.Helper()
	d.s.onEnd(false)
	d.publish(d.s)
	if err := d.s.onClose(); err != nil {
		d.t.Fatal(err)
	}
}

// one is a batch of one record without a producer.
func one(value string) []byte { return many(value) }

// many is a batch of records, one for each value, stamped with a time that goes
// with nothing.
func many(values ...string) []byte { return build(batch.Builder{ProducerID: -1}, 1000, values...) }

// build is a batch whose records have timestamps from ts on, one apart.
func build(b batch.Builder, ts int64, values ...string) []byte {
	recs := make([]batch.Record, len(values))
	for i, v := range values {
		recs[i] = batch.Record{Offset: tiers.Offset(i), Timestamp: ts + int64(i), Key: []byte("k"), Value: []byte(v)}
	}
	out, err := b.Build(recs)
	if err != nil {
		panic(err)
	}
	return out
}

// values are the records of batches by offset.
func values(tb testing.TB, records []byte) map[tiers.Offset]string {
	tb.Helper()
	out := map[tiers.Offset]string{}
	dec := batch.NewDecoder(1 << 24)
	for len(records) > 0 {
		h, err := batch.Parse(records)
		if err != nil {
			tb.Fatal(err)
		}
		if !batch.VerifyCRC(records[:h.Size()]) {
			tb.Fatalf("batch at %d: wrong CRC", h.BaseOffset)
		}
		err = dec.Records(records[:h.Size()], func(r batch.Record) bool {
			out[r.Offset] = string(r.Value)
			return true
		})
		if err != nil {
			tb.Fatal(err)
		}
		records = records[h.Size():]
	}
	return out
}

// readAll reads the log from its start, whatever tier serves it.
func readAll(tb testing.TB, o *Owner, iso Isolation) map[tiers.Offset]string {
	tb.Helper()
	all := map[tiers.Offset]string{}
	for from := o.View().LogStart; ; {
		res, err := o.Read(tb.Context(), ReadRequest{From: from, CurrentEpoch: -1, FetchedEpoch: -1, MaxBytes: 700, MinOne: true, Isolation: iso})
		if err != nil {
			tb.Fatalf("read at %d: %v", from, err)
		}
		if len(res.Records) == 0 {
			return all
		}
		maps.Copy(all, values(tb, res.Records))
		next := nextAfter(res.Records, -1)
		if next <= from {
			tb.Fatalf("read at %d does not go on: next %d", from, next)
		}
		from = next
	}
}

func read(from tiers.Offset) ReadRequest {
	return ReadRequest{From: from, CurrentEpoch: tiers.NoEpoch, FetchedEpoch: tiers.NoEpoch, MaxBytes: 1 << 20, MinOne: true}
}

func wantKind(tb testing.TB, err error, kind tiers.Kind) {
	tb.Helper()
	if err == nil || tiers.KindOf(err) != kind {
		tb.Fatalf("got error %v (kind %v), want kind %v", err, tiers.KindOf(err), kind)
	}
}

// rows is the control plane as far as an owner sees it.
type rows struct {
	mu    sync.Mutex
	epoch tiers.LeaderEpoch // what a fence must have
	byID  map[tiers.SegmentID]tiers.RemoteSegment
	start tiers.Offset                              // the log start that was remembered
	fault func(op string) (applied bool, err error) // nil: none
	calls []string
}

func newRows() *rows { return &rows{byID: map[tiers.SegmentID]tiers.RemoteSegment{}} }

// failNext makes the next n calls of op fail; applied ones happen all the same.
func (r *rows) failNext(op string, n int, applied bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault = func(got string) (bool, error) {
		if got != op || n == 0 {
			return false, nil
		}
		n--
		return applied, err
	}
}

func (r *rows) do(op string, act func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, op)
	if r.fault != nil {
		applied, err := r.fault(op)
		if err != nil && applied {
			_ = act()
		}
		if err != nil {
			return err
		}
	}
	return act()
}

func (r *rows) Segments(_ context.Context, id tiers.PartitionID, gen tiers.HistoryGen) (out []tiers.RemoteSegment, err error) {
	err = r.do("segments", func() error {
		for _, row := range r.byID {
			if row.Partition == id && row.Gen == gen {
				out = append(out, row)
			}
		}
		slices.SortFunc(out, func(a, b tiers.RemoteSegment) int { return int(a.Base - b.Base) })
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (r *rows) move(op string, f Fence, id tiers.SegmentID, to tiers.SegmentState, facts *tiers.RemoteSegment) error {
	return r.do(op, func() error {
		row, ok := r.byID[id]
		switch {
		case f.Epoch != r.epoch:
			return tiers.E(tiers.StaleFence, op, id.Hex(), "epoch %d, the partition is at %d", f.Epoch, r.epoch)
		case !ok && to == tiers.DeleteFinished:
			return nil
		case !ok && to == tiers.CopyStarted:
			row = *facts
		case !ok || !row.State.CanMove(to):
			return tiers.E(tiers.Conflict, op, id.Hex(), "from %s", row.State)
		case facts != nil:
			row = *facts
		}
		row.State = to
		if err := row.Valid(); err != nil {
			return tiers.E(tiers.InvalidRequest, op, id.Hex(), "%w", err)
		}
		r.byID[id] = row
		if to == tiers.DeleteFinished {
			delete(r.byID, id)
		}
		return nil
	})
}

func (r *rows) CopyStarted(_ context.Context, f Fence, s tiers.RemoteSegment) error {
	return r.move("copy-started", f, s.ID, tiers.CopyStarted, &s)
}

func (r *rows) CopyFinished(_ context.Context, f Fence, s tiers.RemoteSegment) error {
	return r.move("copy-finished", f, s.ID, tiers.CopyFinished, &s)
}

func (r *rows) DeleteStarted(_ context.Context, f Fence, id tiers.SegmentID) error {
	return r.move("delete-started", f, id, tiers.DeleteStarted, nil)
}

func (r *rows) DeleteFinished(_ context.Context, f Fence, id tiers.SegmentID) error {
	return r.move("delete-finished", f, id, tiers.DeleteFinished, nil)
}

func (r *rows) RaiseLogStart(_ context.Context, f Fence, o tiers.Offset) error {
	return r.do("raise-log-start", func() error {
		if f.Epoch != r.epoch {
			return tiers.E(tiers.StaleFence, "raise-log-start", f.Partition.String(), "epoch %d, the partition is at %d", f.Epoch, r.epoch)
		}
		r.start = max(r.start, o)
		return nil
	})
}

// list is the rows in order of base, as "[base,end) state".
func (r *rows) list() (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]tiers.RemoteSegment, 0, len(r.byID))
	for _, row := range r.byID {
		all = append(all, row)
	}
	slices.SortFunc(all, func(a, b tiers.RemoteSegment) int { return slices.Compare(a.ID[:], b.ID[:]) })
	for _, row := range all {
		out = append(out, fmt.Sprintf("[%d,%d) %s", row.Base, row.End, row.State))
	}
	return out
}

// keysOf are the keys that finished rows name.
func (r *rows) keysOf() (keys []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, row := range r.byID {
		if row.State == tiers.CopyFinished {
			keys = append(keys, remote.SegmentKey(row), remote.MetaKey(row))
		}
	}
	slices.Sort(keys)
	return keys
}
