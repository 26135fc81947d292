package remote

// What this process asks of a bucket at most: bytes and requests per second,
// requests under way. It does not serve retries (retry.go), which come before a
// Gate: each try passes it anew.

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Limits are rates that hold for the whole process. 0 is no limit.
type Limits struct {
	UploadBytes   int64 // per second
	DownloadBytes int64 // per second
	WriteRequests int64 // per second, of class A: PUT, POST, LIST
	ReadRequests  int64 // per second, of class B: GET, HEAD
}

// Places of the lanes: requests under way at most (object-store guidance is to
// have few large writes and many small reads).
const (
	writePlaces  = 16
	readPlaces   = 64
	deletePlaces = 16
)

// Op is a kind of request to an object store.
type Op uint8

// The requests.
const (
	OpPut Op = iota
	OpCreateUpload
	OpUploadPart
	OpCompleteUpload
	OpAbortUpload
	OpGet
	OpHead
	OpList
	OpListUploads
	OpDelete
	OpDeleteMany
	OpSettings // of the bucket
	opEnd
)

// Class is how requests are priced: A for writes and listings, B for reads.
// Deletions cost nothing.
type Class uint8

// The classes.
const (
	ClassFree Class = iota
	ClassA
	ClassB
)

// String is the class as price lists call it.
func (c Class) String() string {
	switch c {
	case ClassA:
		return "A"
	case ClassB:
		return "B"
	default:
		return "free"
	}
}

// kind is what is known of an Op.
type kind struct {
	name  string
	class Class
	lane  laneID
}

type laneID uint8

const (
	writeLane laneID = iota
	readLane
	deleteLane
	laneEnd
)

// String names the lane to operators.
func (l laneID) String() string { return [laneEnd]string{"writes", "reads", "deletes"}[l] }

// kinds is the table of requests. A listing is priced as a write and loads a
// store as a read does.
func (o Op) kind() kind {
	return [opEnd]kind{
		OpPut:            {"put", ClassA, writeLane},
		OpCreateUpload:   {"create-upload", ClassA, writeLane},
		OpUploadPart:     {"upload-part", ClassA, writeLane},
		OpCompleteUpload: {"complete-upload", ClassA, writeLane},
		OpAbortUpload:    {"abort-upload", ClassFree, deleteLane},
		OpGet:            {"get", ClassB, readLane},
		OpHead:           {"head", ClassB, readLane},
		OpList:           {"list", ClassA, readLane},
		OpListUploads:    {"list-uploads", ClassA, readLane},
		OpDelete:         {"delete", ClassFree, deleteLane},
		OpDeleteMany:     {"delete-many", ClassFree, deleteLane},
		OpSettings:       {"settings", ClassB, readLane},
	}[o]
}

// String is the label of the request in metrics.
func (o Op) String() string { return o.kind().name }

// Request is one request to the store. Key may be a prefix.
type Request struct {
	Op  Op
	Key string
}

// GateOptions say what a Gate begins with.
type GateOptions struct {
	Limits     Limits
	Registerer prometheus.Registerer // nil: nothing is shown
}

// Gate is what every request of a process passes on its way to a bucket. It holds
// requests back so that the limits hold, and counts them (Meter).
//
// What is not below topics/ passes freely: the claim, changes of topics and
// snapshots of the control plane. They are few, and a claim that is read late
// ends the node. Deletions have places of their own and no rate, so copies do not
// keep what is due from going. All methods are safe for concurrent use.
type Gate struct {
	lanes    [laneEnd]*lane
	up, down *flow
	requests [ClassB + 1]*flow // nil for ClassFree
	meter    *Meter

	counted *prometheus.CounterVec
	bytes   [2]prometheus.Counter // up, down
}

// NewGate returns a gate that nothing has passed yet.
func NewGate(o GateOptions) *Gate {
	g := &Gate{
		lanes: [laneEnd]*lane{newLane(writePlaces), newLane(readPlaces), newLane(deletePlaces)},
		up:    newFlow(o.Limits.UploadBytes),
		down:  newFlow(o.Limits.DownloadBytes),
		meter: newMeter(time.Now()),
	}
	g.requests[ClassA], g.requests[ClassB] = newFlow(o.Limits.WriteRequests), newFlow(o.Limits.ReadRequests)
	g.register(o.Registerer)
	return g
}

func (g *Gate) register(r prometheus.Registerer) {
	const sub = "bucket"
	g.counted = counters(r, sub, "requests_total", "Requests that were sent to the object store, each try for itself, with the HTTP status of the answer or none.", "op", "class", "code")
	moved := counters(r, sub, "bytes_total", "Bytes of bodies on the wire, those of tries that failed included.", "direction")
	g.bytes = [2]prometheus.Counter{moved.WithLabelValues("up"), moved.WithLabelValues("down")}
	for id, l := range g.lanes {
		labels := prometheus.Labels{"lane": laneID(id).String()}
		for _, series := range []struct {
			name, help string
			value      func(LaneState) int
		}{
			{"window", "Requests that may be under way at once. It halves when the store asks to slow down.", func(s LaneState) int { return s.Window }},
			{"in_flight", "Requests that are under way.", func(s LaneState) int { return s.InFlight }},
			{"waiting", "Requests that wait for a place.", func(s LaneState) int { return s.Waiting }},
		} {
			register(r, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Namespace: "strandline", Subsystem: sub, Name: series.name, Help: series.help, ConstLabels: labels,
			}, func() float64 { return float64(series.value(l.state())) }))
		}
		register(r, prometheus.NewCounterFunc(prometheus.CounterOpts{
			Namespace: "strandline", Subsystem: sub, Name: "slow_downs_total", Help: "Times that the window was halved.", ConstLabels: labels,
		}, func() float64 { return float64(l.state().SlowDowns) }))
	}
}

// Limits are the rates that hold now.
func (g *Gate) Limits() Limits {
	return Limits{
		UploadBytes: g.up.rate.Load(), DownloadBytes: g.down.rate.Load(),
		WriteRequests: g.requests[ClassA].rate.Load(), ReadRequests: g.requests[ClassB].rate.Load(),
	}
}

// SetLimits changes the rates at once, for what is under way too. A negative rate
// is no limit.
func (g *Gate) SetLimits(l Limits) {
	g.up.set(max(0, l.UploadBytes))
	g.down.set(max(0, l.DownloadBytes))
	g.requests[ClassA].set(max(0, l.WriteRequests))
	g.requests[ClassB].set(max(0, l.ReadRequests))
}

// Meter is what the gate has counted.
func (g *Gate) Meter() *Meter { return g.meter }

// LaneState pictures the requests of one kind.
type LaneState struct {
	Name      string // writes, reads or deletes
	Most      int    // places
	Window    int    // places that may be taken now
	InFlight  int
	Waiting   int
	SlowDowns int64         // times that the window was halved
	Pause     time.Duration // until the next request may begin, because the store asked for it
}

// Lanes pictures all kinds.
func (g *Gate) Lanes() []LaneState {
	out := make([]LaneState, len(g.lanes))
	for i, l := range g.lanes {
		out[i] = l.state()
		out[i].Name = laneID(i).String()
	}
	return out
}

// Begin waits until a request may be sent. The error is that of ctx. The caller
// reports what becomes of it and ends with Done. On a nil Gate everything passes
// and nothing is counted.
func (g *Gate) Begin(ctx context.Context, r Request) (*Passage, error) {
	if g == nil {
		return nil, nil
	}
	p := &Passage{gate: g, request: r, free: !strings.HasPrefix(r.Key, topicsPrefix)}
	k := r.Op.kind()
	if p.free {
		return p, nil
	}
	if f := g.requests[k.class]; f != nil {
		if _, err := f.take(ctx, 1); err != nil {
			return nil, err
		}
	}
	var err error
	if p.began, err = g.lanes[k.lane].enter(ctx); err != nil {
		p.giveRequestBack()
		return nil, err
	}
	return p, nil
}

// Passage is one request that a gate let through. It belongs to whoever sends the
// request. Sent, Up and Down may be called by others meanwhile, before Done. A nil
// Passage does nothing.
type Passage struct {
	gate    *Gate
	request Request
	free    bool // of limits
	began   time.Time

	sent     atomic.Bool
	up, down atomic.Int64

	status     int // 0: no answer
	retryAfter time.Duration
	done       bool
}

// Sent says that bytes of the request may have reached the store: it counts.
func (p *Passage) Sent() {
	if p != nil {
		p.sent.Store(true)
	}
}

// Answered says how the store answered, and for how long it wants to be left
// alone.
func (p *Passage) Answered(status int, retryAfter time.Duration) {
	if p != nil {
		p.sent.Store(true)
		p.status, p.retryAfter = status, retryAfter
	}
}

// AskUp waits until some of want bytes may be sent and returns how many. Those
// that are then not sent are told to Up.
func (p *Passage) AskUp(ctx context.Context, want int) (int, error) {
	if p == nil || p.free {
		return want, nil
	}
	n, err := p.gate.up.take(ctx, int64(want))
	return int(n), err
}

// Up says that n of asked bytes are on their way.
func (p *Passage) Up(asked, n int) {
	if p == nil {
		return
	}
	p.up.Add(int64(n))
	p.gate.bytes[0].Add(float64(n))
	if !p.free {
		p.gate.up.giveBack(int64(asked - n))
	}
}

// AskDown is AskUp for the answer.
func (p *Passage) AskDown(ctx context.Context, want int) (int, error) {
	if p == nil || p.free {
		return want, nil
	}
	n, err := p.gate.down.take(ctx, int64(want))
	return int(n), err
}

// Down says that n of asked bytes came.
func (p *Passage) Down(asked, n int) {
	if p == nil {
		return
	}
	p.down.Add(int64(n))
	p.gate.bytes[1].Add(float64(n))
	if !p.free {
		p.gate.down.giveBack(int64(asked - n))
	}
}

// Done ends the passage. A request that was never sent is not counted, and takes
// nothing of the rate. Further calls do nothing.
func (p *Passage) Done() {
	if p == nil || p.done {
		return
	}
	p.done = true
	k := p.request.Op.kind()
	if p.sent.Load() {
		code := "none"
		if p.status > 0 {
			code = strconv.Itoa(p.status)
		}
		p.gate.counted.WithLabelValues(k.name, k.class.String(), code).Inc()
		p.gate.meter.add(p.request.Key, k.class, refusedStatus(p.status), p.up.Load(), p.down.Load())
	} else {
		p.giveRequestBack()
	}
	if !p.free {
		p.gate.lanes[k.lane].leave(p.began, verdictOf(p.status), p.retryAfter)
	}
}

func (p *Passage) giveRequestBack() {
	if f := p.gate.requests[p.request.Op.kind().class]; f != nil && !p.free {
		f.giveBack(1)
	}
}

// verdictOf reads an HTTP status. 503 is SlowDown, whatever the code beside it
// says: the answer to a HEAD has none.
func verdictOf(status int) verdict {
	switch {
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		return slowDown
	case status == 0, status >= http.StatusInternalServerError:
		return noVerdict
	}
	return wellTaken
}

// refusedStatus reports whether the store did no work for the request.
func refusedStatus(status int) bool {
	return status == http.StatusTooManyRequests || status >= http.StatusInternalServerError
}
