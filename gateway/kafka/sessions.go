package kafka

import (
	"container/list"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/tiers"
)

// wanted is a partition of a Fetch request or of a session.
type wanted struct {
	name     string // "" if asked for by an id that no topic has
	id       tiers.TopicID
	index    int32
	offset   tiers.Offset
	current  tiers.LeaderEpoch
	fetched  tiers.LeaderEpoch
	maxBytes int
}

// wantedKey is what makes two of them the same: the id where the client uses ids
// (v13+), else the name.
type wantedKey struct {
	name  string
	id    tiers.TopicID
	index int32
}

func (w wanted) key() wantedKey {
	if !w.id.IsZero() {
		return wantedKey{id: w.id, index: w.index}
	}
	return wantedKey{name: w.name, index: w.index}
}

// entry is a partition of a session with what its client was told last.
type entry struct {
	wanted
	highWatermark, logStart tiers.Offset // NoOffset: tell it again
}

// session is an incremental fetch session (KIP-227): the client sends what
// changed in its list, and is sent the partitions that changed.
//
// Order is the order in which partitions are read; one that gave records goes to
// the end of it, so that a busy partition cannot starve the rest.
type session struct {
	id      int32
	usesID  bool          // fixed when it is made (v13+)
	used    time.Time     // guarded by sessions.mu
	counted int           // partitions that are in sessions.parts; guarded by sessions.mu
	place   *list.Element // guarded by sessions.mu

	mu    sync.Mutex // guards what follows
	epoch int32      // that the next request must carry
	parts map[wantedKey]*list.Element
	order list.List // of *entry
}

// sessions holds them all. Once it is full, a session makes room only after it
// was idle for a while: otherwise two clients could drive each other out with
// every request. A client for which there is no room goes on without a session.
//
// Partitions are bounded, too: those of one session and those of all. Names and
// ids in a request need not exist, so a client could add to its session without
// end.
type sessions struct {
	max      int
	maxParts int // of one session
	maxAll   int // of all sessions
	idle     time.Duration
	gauge    prometheus.Gauge

	mu    sync.Mutex // guards what follows
	byID  map[int32]*session
	lru   list.List // of *session, least recently used first
	parts int       // of all sessions
}

// What sessions may remember.
const (
	maxSessionParts    = 100_000
	maxAllSessionParts = 1_000_000
)

func newSessions(most int, idle time.Duration, gauge prometheus.Gauge) *sessions {
	return &sessions{
		max: most, maxParts: maxSessionParts, maxAll: maxAllSessionParts, idle: idle, gauge: gauge, byID: map[int32]*session{},
	}
}

// Session epochs with a meaning of their own.
const (
	finalEpoch   int32 = -1 // no session; an old one ends
	initialEpoch int32 = 0  // everything, and a new session
)

// scope is what one fetch covers.
type scope struct {
	session     *session // nil: none
	incremental bool
	parts       []wanted
}

func (sc *scope) id() int32 {
	if sc.session == nil {
		return 0
	}
	return sc.session.id
}

// begin opens, continues or ends a session as the request asks for it, with the
// partitions that the request names. The code is not zero if the request cannot
// be served.
func (ss *sessions) begin(req *kmsg.FetchRequest, parts []wanted, forgotten []wantedKey, now time.Time) (scope, int16) {
	switch {
	case req.Version < 7:
		return scope{parts: parts}, codeNone
	case req.SessionEpoch == finalEpoch:
		ss.drop(req.SessionID)
		return scope{parts: parts}, codeNone
	case req.SessionEpoch == initialEpoch:
		ss.drop(req.SessionID)
		return scope{session: ss.open(req.Version >= 13, parts, now), parts: parts}, codeNone
	}
	return ss.resume(req, parts, forgotten, now)
}

// open makes a session, nil if there is no room or nothing to remember.
func (ss *sessions) open(usesID bool, parts []wanted, now time.Time) *session {
	if len(parts) == 0 {
		return nil
	}
	s := &session{usesID: usesID, used: now, epoch: 1, parts: map[wantedKey]*list.Element{}}
	for _, w := range parts {
		s.update(w)
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if len(ss.byID) >= ss.max && !ss.evict(now) {
		return nil
	}
	if !ss.count(s, len(s.parts)) {
		return nil
	}
	for s.id == 0 || ss.byID[s.id] != nil {
		s.id = rand.Int32N(math.MaxInt32-1) + 1
	}
	ss.byID[s.id] = s
	s.place = ss.lru.PushBack(s)
	ss.gauge.Set(float64(len(ss.byID)))
	return s
}

// count makes n the number of partitions that s remembers; false if that is too
// much. The caller holds ss.mu.
func (ss *sessions) count(s *session, n int) bool {
	if n > ss.maxParts || ss.parts-s.counted+n > ss.maxAll {
		return false
	}
	ss.parts += n - s.counted
	s.counted = n
	return true
}

// evict drops the session that was idle the longest, if that was long enough. The
// caller holds ss.mu.
func (ss *sessions) evict(now time.Time) bool {
	oldest := ss.lru.Front()
	if oldest == nil {
		return false
	}
	s, _ := oldest.Value.(*session)
	if now.Sub(s.used) < ss.idle {
		return false
	}
	ss.remove(s)
	return true
}

func (ss *sessions) remove(s *session) {
	if ss.byID[s.id] == s {
		delete(ss.byID, s.id)
		ss.parts -= s.counted
		s.counted = 0
		ss.lru.Remove(s.place)
		ss.gauge.Set(float64(len(ss.byID)))
	}
}

func (ss *sessions) drop(id int32) {
	if id == 0 {
		return
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if s := ss.byID[id]; s != nil {
		ss.remove(s)
	}
}

// touch finds a session and counts it as used.
func (ss *sessions) touch(id int32, now time.Time) *session {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	s := ss.byID[id]
	if s != nil {
		s.used = now
		ss.lru.MoveToBack(s.place)
	}
	return s
}

// resume continues a session: 70 if it is gone, 71 if this is not the request
// that must come next, 106 if the client changed between names and ids.
func (ss *sessions) resume(req *kmsg.FetchRequest, parts []wanted, forgotten []wantedKey, now time.Time) (scope, int16) {
	s := ss.touch(req.SessionID, now)
	if s == nil {
		return scope{}, codeSessionNotFound
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.epoch != req.SessionEpoch:
		return scope{}, codeSessionEpoch
	case s.usesID != (req.Version >= 13):
		return scope{}, codeSessionTopicID
	}
	s.epoch = nextEpoch(s.epoch)
	for _, w := range parts {
		s.update(w)
	}
	for _, k := range forgotten {
		if e := s.parts[k]; e != nil {
			s.order.Remove(e)
			delete(s.parts, k)
		}
	}
	if s.order.Len() == 0 { // nothing is left: the client will have to begin anew
		ss.drop(s.id)
		return scope{}, codeNone
	}
	if !ss.grown(s) { // the client begins anew, and gets no session
		return scope{}, codeSessionNotFound
	}
	all := make([]wanted, 0, s.order.Len())
	for e := s.order.Front(); e != nil; e = e.Next() {
		all = append(all, entryOf(e).wanted)
	}
	return scope{session: s, incremental: true, parts: all}, codeNone
}

// grown counts what s has become, and drops it if that is too much.
func (ss *sessions) grown(s *session) bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.byID[s.id] != s {
		return true // dropped meanwhile, and gone after this answer
	}
	if ss.count(s, len(s.parts)) {
		return true
	}
	ss.remove(s)
	return false
}

func nextEpoch(e int32) int32 {
	if e == math.MaxInt32 {
		return 1
	}
	return e + 1
}

// update adds a partition or changes what is asked of it. The name that an id had
// when the partition was added stays: it is how a topic that was made again is
// told from one that never was (report 067).
func (s *session) update(w wanted) {
	k := w.key()
	if e := s.parts[k]; e != nil {
		old := entryOf(e)
		if w.name == "" {
			w.name = old.name
		}
		old.wanted = w
		return
	}
	s.parts[k] = s.order.PushBack(&entry{wanted: w, highWatermark: tiers.NoOffset, logStart: tiers.NoOffset})
}

func entryOf(e *list.Element) *entry {
	v, _ := e.Value.(*entry)
	return v
}

// finish notes what the client is about to be told and returns the partitions
// that it must be told of.
func (sc *scope) finish(all []*pull) []*pull {
	if sc.session == nil {
		return all
	}
	s := sc.session
	s.mu.Lock()
	defer s.mu.Unlock()
	out := all[:0:0]
	for _, p := range all {
		e := s.parts[p.want.key()]
		if e == nil {
			continue // forgotten by a later request
		}
		if entryOf(e).tell(p) || !sc.incremental {
			out = append(out, p)
		}
		if sc.incremental && p.size > 0 {
			s.order.MoveToBack(e)
		}
	}
	return out
}

// tell reports whether p is news, and remembers it. An error is news every time.
func (e *entry) tell(p *pull) bool {
	if p.code != codeNone {
		e.highWatermark, e.logStart = tiers.NoOffset, tiers.NoOffset
		return true
	}
	hw, start := p.watermarks()
	news := p.size > 0 || p.diverging != nil || hw != e.highWatermark || start != e.logStart
	e.highWatermark, e.logStart = hw, start
	return news
}
