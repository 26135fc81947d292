package partition

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/batch"
	"github.com/strandline-io/strandline/tiers/fsys/mem"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

// model is a partition next to a slice of what was acknowledged. rapid chooses
// what happens; jobs run when it says so, faults strike where it says so.
type model struct {
	*testing.T
	w      *world
	d      *driven
	acked  []string // by offset
	times  []int64
	start  tiers.Offset // the highest log start that was answered
	trims  []<-chan trimAnswer
	asked  tiers.Offset // the highest that was asked for
	forgot bool         // the bucket was given up at some time
	least  int64        // the smallest size limit that there ever was; negative: none
	seq    int32
	clock  time.Time
	count  int
}

func newModel(t *testing.T, ack Ack) *model {
	t.Helper()
	m := &model{T: t, w: newWorld(t), clock: time.Unix(1000, 0), least: -1}
	m.w.config.Retention = keep(func(*Retention) {})
	m.w.now = func() time.Time { return m.clock }
	m.w.config.Ack, m.w.config.FlushEvery = ack, time.Second
	m.w.config.Local.SegmentBytes = 400
	m.d = m.w.drive()
	return m
}

// Produce appends a group of batches.
func (m *model) produce(r *rapid.T) {
	var batches [][]byte
	var vs []string
	var ts []int64
	for range rapid.IntRange(1, 4).Draw(r, "batches") {
		var values []string
		first := rapid.Int64Range(100, 200).Draw(r, "timestamp")
		for i := range rapid.IntRange(1, 3).Draw(r, "records") {
			m.count++
			values = append(values, fmt.Sprintf("value %d", m.count))
			ts = append(ts, first+int64(i))
		}
		vs = append(vs, values...)
		batches = append(batches, build(batch.Builder{ProducerID: 1, BaseSequence: m.seq}, first, values...))
		m.seq += int32(len(values))
	}
	for i, c := range m.d.append(batches...) {
		if c.err != nil {
			r.Fatalf("batch %d: %v", i, c.err)
		}
	}
	m.acked, m.times = append(m.acked, vs...), append(m.times, ts...)
}

// job runs one of the jobs that wait.
func (m *model) job(r *rapid.T) {
	if len(m.d.jobs) == 0 {
		r.Skip("no job")
	}
	i := rapid.IntRange(0, len(m.d.jobs)-1).Draw(r, "job")
	j := m.d.jobs[i]
	m.d.jobs = slices.Delete(m.d.jobs, i, i+1)
	m.d.step(j.run(m.Context(), m.d.tools()).on)
}

// fault makes something fail next.
func (m *model) fault(r *rapid.T) {
	applied := rapid.Bool().Draw(r, "applied")
	if op := rapid.SampledFrom([]string{"", "raise-log-start", "copy-started", "copy-finished", "delete-started", "delete-finished", "segments"}).Draw(r, "row"); op != "" {
		m.w.rows.failNext(op, 1, applied, fmt.Errorf("lost answer of %s", op))
		return
	}
	op := rapid.SampledFrom([]memory.Op{memory.OpPut, memory.OpStat, memory.OpDelete}).Draw(r, "op")
	m.w.bucket.Add(memory.Fault{Ops: op, Skip: rapid.IntRange(0, 1).Draw(r, "skip"), Applied: applied, Err: remote.ErrUnavailable})
}

func (m *model) heal(*rapid.T) {
	m.w.bucket.Clear()
	m.w.rows.failNext("", 0, false, nil)
}

func (m *model) wait(*rapid.T) {
	m.clock = m.clock.Add(time.Minute)
	m.d.step((*state).onTick)
}

// dropLocal removes what is in the bucket from disk.
func (m *model) dropLocal(r *rapid.T) {
	m.d.dropLocal(tiers.Offset(rapid.Int64Range(0, int64(m.d.View().RemoteEnd)).Draw(r, "drop")))
}

// trim asks for records to be deleted; the answer comes when it comes.
func (m *model) trim(r *rapid.T) {
	v := m.d.View()
	o := tiers.Offset(rapid.Int64Range(int64(v.LogStart), int64(min(v.HighWatermark, v.LogStart+3))).Draw(r, "start"))
	m.asked = max(m.asked, o)
	m.trims = append(m.trims, m.d.ask(o))
}

// answers takes what was answered: a start that was told holds for ever.
func (m *model) answers() {
	m.trims = slices.DeleteFunc(m.trims, func(c <-chan trimAnswer) bool {
		select {
		case a := <-c:
			m.start = max(m.start, a.start)
			return true
		default:
			return false
		}
	})
}

// retain runs a pass, perhaps under other limits. Copies may be paused.
func (m *model) retain(r *rapid.T) {
	limit := func(name string) int64 { return rapid.SampledFrom([]int64{-1, -1, 0, 300, 900}).Draw(r, name) }
	c := m.d.s.config
	c.Retention.Total.Bytes, c.Retention.Local.Bytes = limit("total"), limit("local")
	c.Retention.CopyPaused = rapid.IntRange(0, 5).Draw(r, "paused") == 0
	c.Retention.Delay = rapid.SampledFrom([]time.Duration{0, 0, 90 * time.Second}).Draw(r, "delay")
	c.Remote = rapid.IntRange(0, 5).Draw(r, "off") != 0
	c.Retention.ForgetRemote = !c.Remote && rapid.Bool().Draw(r, "forget")
	m.forgot = m.forgot || c.Retention.ForgetRemote
	if n := c.Retention.Total.Bytes; n >= 0 && (m.least < 0 || n < m.least) {
		m.least = n
	}
	m.w.config = c
	m.d.step(func(s *state) {
		if err := s.onConfigure(c); err != nil {
			r.Fatal(err)
		}
		s.onRetain()
	})
}

// reopen closes and opens; the jobs that wait are lost with the process.
func (m *model) reopen(r *rapid.T, how string) {
	if how == "lost disk" && len(m.w.rows.keysOf()) == 0 {
		r.Skip("nothing is in the bucket")
	}
	m.heal(r)
	m.answers()
	m.d.jobs, m.trims = nil, nil
	end := m.d.View().LogEnd
	switch how {
	case "close":
		m.d.end()
		m.w.stop()
		m.w.id.Epoch++
		m.w.start()
	case "kill":
		m.w.crash(m.w.fs.KillCopy())
	case "power":
		m.w.crash(m.w.fs.CrashCopy(rapid.Uint64().Draw(r, "seed")))
	case "lost disk":
		// All that is left is what the bucket has.
		end = max(m.d.View().RemoteEnd, m.w.rows.start)
		m.w.id.LogStart = m.w.rows.start
		m.w.crash(mem.New())
	}
	m.w.id.LogStart = m.w.rows.start
	m.d = m.w.drive()
	v := m.d.View()
	if how == "power" && m.w.config.Ack != AckFsync || how == "lost disk" {
		// What was not on disk is lost, but not below what the bucket has.
		if v.LogEnd > tiers.Offset(len(m.acked)) && v.LogEnd > m.w.rows.start {
			r.Fatalf("%s: log end %d of %d", how, v.LogEnd, len(m.acked))
		}
		if how == "lost disk" && v.LogEnd < end {
			r.Fatalf("%s: log end %d, the bucket had %d", how, v.LogEnd, end)
		}
		m.cut(min(int(v.LogEnd), len(m.acked)))
		return
	}
	if v.LogEnd != end {
		r.Fatalf("%s: log end %d, want %d", how, v.LogEnd, end)
	}
}

func (m *model) cut(end int) {
	m.acked, m.times = m.acked[:end], m.times[:end]
	// The producer of the model is told by its next sequence where it is; a real
	// one would ask for a new epoch.
	m.seq = int32(end)
}

// check reads everything from wherever it is and compares.
func (m *model) check(r *rapid.T) {
	v := m.d.View()
	if err := v.Valid(); err != nil {
		r.Fatal(err)
	}
	m.answers()
	if int(v.LogEnd) != len(m.acked) || v.HighWatermark != v.LogEnd || v.LogStart < m.start || v.LogStart > m.w.rows.start {
		r.Fatalf("%+v, %d acknowledged, start %d answered, %d remembered", v.Watermarks, len(m.acked), m.start, m.w.rows.start)
	}
	if v.LogStart > m.asked && m.least < 0 && !m.forgot {
		r.Fatalf("the log starts at %d of %d, nobody asked for more than %d and there is no limit", v.LogStart, v.LogEnd, m.asked)
	}
	m.start = max(m.start, v.LogStart)
	got := readAll(m, m.d.Owner, ReadUncommitted)
	for o := v.LogStart; o < v.LogEnd; o++ {
		if got[o] != m.acked[o] {
			r.Fatalf("offset %d: %q, want %q", o, got[o], m.acked[o])
		}
	}
}

// checkTimes compares time look-ups over both tiers.
func (m *model) checkTimes(r *rapid.T) {
	v := m.d.View()
	ts := rapid.Int64Range(99, 204).Draw(r, "time")
	want := tiers.NoOffset
	for o := v.LogStart; o < v.LogEnd; o++ {
		if m.times[o] >= ts {
			want = o
			break
		}
	}
	at, err := m.d.ListOffset(m.Context(), ts, ReadUncommitted, tiers.NoEpoch)
	if err != nil || at.Offset != want {
		r.Fatalf("time %d from %d: %+v, %v, want %d", ts, v.LogStart, at, err, want)
	}
}

// finish heals everything: in the end the bucket holds one complete set of objects
// for each closed segment and nothing else.
func (m *model) finish(r *rapid.T) {
	m.heal(r)
	m.w.config.Retention, m.w.config.Remote = keep(func(*Retention) {}), true
	m.d.step(func(s *state) {
		if err := s.onConfigure(m.w.config); err != nil {
			r.Fatal(err)
		}
	})
	for range 30 {
		m.d.runAll()
		m.wait(r)
	}
	m.d.roll()
	for range 5 {
		m.d.runAll()
		m.wait(r)
	}
	if v := m.d.View(); v.RemoteEnd != v.LogEnd {
		r.Fatalf("remote end %d of %d: rows %v\n%s", v.RemoteEnd, v.LogEnd, m.w.rows.list(), m.w.noise)
	}
	if keys := m.w.bucket.Keys(""); !slices.Equal(keys, m.w.rows.keysOf()) {
		r.Fatalf("keys %s\nrows %v", strings.Join(keys, "\n"), m.w.rows.list())
	}
	m.check(r)
	m.d.end()
	m.w.stop()
}

// TestModel runs the model under every ack mode.
func TestModel(t *testing.T) {
	for name, ack := range map[string]Ack{"fsync": AckFsync, "interval": AckInterval, "os": AckOS} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(r *rapid.T) {
				m := newModel(t, ack)
				reopen := func(how string) func(*rapid.T) { return func(r *rapid.T) { m.reopen(r, how) } }
				r.Repeat(map[string]func(*rapid.T){
					"":           m.check,
					"produce":    m.produce,
					"job":        m.job,
					"job again":  m.job,
					"fault":      m.fault,
					"heal":       m.heal,
					"wait":       m.wait,
					"drop local": m.dropLocal,
					"trim":       m.trim,
					"retain":     m.retain,
					"times":      m.checkTimes,
					"close":      reopen("close"),
					"kill":       reopen("kill"),
					"power":      reopen("power"),
					"lost disk":  reopen("lost disk"),
				})
				m.finish(r)
			})
		})
	}
}
