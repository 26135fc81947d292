package partition

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/strandline-io/strandline/remoteindex"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/local"
	"github.com/strandline-io/strandline/tiers/plan"
)

// View is an immutable picture of a partition.
type View struct {
	tiers.Watermarks
	History tiers.HistoryID
	Epoch   tiers.LeaderEpoch
	Lineage tiers.Lineage
	Err     error // not nil: the partition is offline or closed, and why
	Copying *CopyTrouble
	Held    *plan.Future // what only a record dated in the future keeps (report 110); nil: nothing

	files  *files             // of the local tier; nil once Err is set
	index  *remoteindex.Index // of the remote tier; never changed
	tiered bool               // segments are copied
	lagged bool               // segments are to be copied, even if that is paused
	lag    Lag
}

// CopyTrouble is why copies of a partition to the bucket fail: nothing of it gets
// there, and what is not there exists once. A View without one has no trouble, or
// nothing to copy.
type CopyTrouble struct {
	Since time.Time // of the first failure
	Err   error     // the first one
}

// files counts the Views and readers that use one local.Snapshot. The Snapshot
// counts references too, but a reader that has only loaded a View holds none
// yet, and the loop may give the last one back at that moment. So a reader takes
// a share only while there is at least one left, and otherwise loads the View
// anew: the count reaches zero only after a newer View was stored.
type files struct {
	*local.Snapshot
	shares atomic.Int64
}

// newFiles takes over the reference that snap carries: one share.
func newFiles(snap *local.Snapshot) *files {
	f := &files{Snapshot: snap}
	f.shares.Store(1)
	return f
}

// share takes a share, unless the last one was given back.
func (f *files) share() bool {
	for {
		n := f.shares.Load()
		if n == 0 {
			return false
		}
		if f.shares.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// drop gives a share back; the last one releases the snapshot.
func (f *files) drop() {
	switch n := f.shares.Add(-1); {
	case n == 0:
		f.Release()
	case n < 0:
		panic("partition: more shares of a snapshot were given back than taken")
	}
}

// pinned returns the latest View with a share of its files, for the caller to
// drop. A View without files has an Err.
func (o *Owner) pinned() (v *View, drop func()) {
	for {
		v := o.view.Load()
		if v.files == nil {
			return v, func() {}
		}
		if v.files.share() {
			return v, v.files.drop
		}
	}
}

// onView makes the View of the state as it is now, nil if nothing that a View
// shows has changed since the last one. The caller stores it, then calls
// onPublished.
func (s *state) onView() *View {
	v := &View{History: s.history, Epoch: s.id.Epoch, Err: s.offline(), Copying: s.trouble}
	if v.Err == nil {
		v.Watermarks, v.Lineage, v.index = s.marks(), s.local.Lineage(), s.index
		v.files, v.tiered = s.onFiles(), s.tiered()
		v.lag = s.onLag(v)
		if h := s.retain.held; h != nil && h.Next > v.LogStart {
			v.Held = h
		}
		s.local.SetHighWatermark(v.HighWatermark)
	} else if s.view != nil {
		v.Watermarks, v.Lineage, v.index = s.view.Watermarks, s.view.Lineage, s.view.index
		if s.ended == nil {
			v.lag = s.view.lag // nobody copies now, and nothing of it is gone
		}
	}
	if s.view != nil && s.view.same(v) {
		return nil
	}
	return v
}

// onFiles returns the files of the last View, or those of a new snapshot if the
// log has changed its segments.
func (s *state) onFiles() *files {
	snap := s.local.Snapshot()
	if s.view != nil && s.view.files != nil && s.view.files.Snapshot == snap {
		snap.Release() // ours from last time is enough
		return s.view.files
	}
	return newFiles(snap)
}

// onPublished notes that v replaced the last View in the door, and gives back
// the loop's share of what only that one showed.
func (s *state) onPublished(v *View) {
	old := s.view
	s.view = v
	s.metrics.lag(&s.lagging, v.lag.Bytes)
	if old != nil && old.files != nil && old.files != v.files {
		old.files.drop()
	}
}

// same reports whether a reader could not tell v from w.
func (v *View) same(w *View) bool {
	return v.Watermarks == w.Watermarks && v.History == w.History && v.Epoch == w.Epoch && errors.Is(v.Err, w.Err) &&
		v.files == w.files && v.Copying == w.Copying && v.Held == w.Held && v.tiered == w.tiered && v.lag == w.lag && v.index == w.index && slices.Equal(v.Lineage, w.Lineage)
}

// wakes reports whether a fetch that waits under v would want w.
func (v *View) wakes(w *View) bool {
	return w.HighWatermark != v.HighWatermark || w.LastStable != v.LastStable || w.LogStart != v.LogStart ||
		w.Epoch != v.Epoch || w.History != v.History || (w.Err != nil && v.Err == nil)
}

// subscribers are the channels of waiting fetches.
type subscribers struct {
	mu   sync.Mutex
	next uint64
	byID map[uint64]chan<- struct{}
}

// Subscribe has c get a value, if it has room, whenever a View is published that
// a waiting fetch could want: more committed records, another epoch, the end.
// The returned function ends that.
func (o *Owner) Subscribe(c chan<- struct{}) (cancel func()) {
	s := &o.subs
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byID == nil {
		s.byID = make(map[uint64]chan<- struct{})
	}
	id := s.next
	s.next++
	s.byID[id] = c
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.byID, id)
	}
}

// wake tells every subscriber, without waiting for any.
func (s *subscribers) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.byID {
		select {
		case c <- struct{}{}:
		default: // it has a wake-up that it has not taken yet
		}
	}
}
