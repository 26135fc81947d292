package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"github.com/strandline-io/strandline/gateway/broker"
	"github.com/strandline-io/strandline/gateway/groups"
)

// Listener is an address to listen on and the one that clients are told to come
// back to (T9).
type Listener struct {
	Name           string
	Address        string // host:port; port 0 takes a free one
	AdvertisedHost string // "": the host of Address
	AdvertisedPort int    // 0: the port that is bound
}

// Options is what a server is handed.
type Options struct {
	Broker     *broker.Broker
	Groups     *groups.Coordinator
	Listeners  []Listener
	Limits     Limits
	Log        hclog.Logger
	Registerer prometheus.Registerer // nil: metrics are kept, but not exposed
}

// Server speaks the Kafka protocol on its listeners.
type Server struct {
	dir     directory
	offsets offsetStore
	lim     Limits
	log     hclog.Logger
	metrics *metrics
	apis    map[int16]api

	buffers   buffers
	requests  *semaphore.Weighted // bytes of requests in flight
	responses *semaphore.Weighted // bytes of records on their way out
	waiting   *semaphore.Weighted // of these, what may wait for a bucket
	sessions  *sessions
	quiet     quieter

	ctx      context.Context // ends when Shutdown loses its patience, or is done
	cancel   context.CancelFunc
	stopping atomic.Bool
	drain    chan struct{} // closed by Shutdown: who waits stops waiting

	mu        sync.Mutex // guards what follows
	listeners []*listener
	conns     map[*conn]struct{}
	perIP     map[string]int
	running   sync.WaitGroup // accept loops and connections
}

// listener is a Listener that is bound.
type listener struct {
	Listener
	ln   net.Listener
	host string // advertised
	port int32
}

// New returns a server; Start has it listen.
func New(o Options) (*Server, error) {
	return newServer(o, nodeDirectory{o.Broker}, o.Groups)
}

func newServer(o Options, d directory, g offsetStore) (*Server, error) {
	lim := o.Limits.withDefaults()
	if err := lim.valid(); err != nil {
		return nil, fmt.Errorf("kafka server: %w", err)
	}
	s := &Server{
		dir: d, offsets: g, lim: lim, log: o.Log, metrics: newMetrics(o.Registerer),
		apis:      map[int16]api{},
		requests:  newBudget(lim.InFlightRequestBytes),
		responses: newBudget(lim.InFlightResponseBytes),
		waiting:   newBudget(max(1, lim.InFlightResponseBytes/2)),
		drain:     make(chan struct{}),
		conns:     map[*conn]struct{}{},
		perIP:     map[string]int{},
	}
	for _, a := range apis() {
		s.apis[a.key] = a
	}
	s.sessions = newSessions(lim.FetchSessions, lim.FetchSessionIdle, s.metrics.sessions)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	for _, l := range o.Listeners {
		s.listeners = append(s.listeners, &listener{Listener: l})
	}
	return s, nil
}

// Start binds all listeners and serves them until Shutdown. If one cannot be
// bound, none is left open.
func (s *Server) Start(ctx context.Context) error {
	for _, l := range s.listeners {
		if err := l.bind(ctx); err != nil {
			s.closeListeners()
			return err
		}
	}
	for _, l := range s.listeners {
		s.log.Info("listening for Kafka clients", "listener", l.Name, "address", l.ln.Addr().String(), "advertised", l.advertised())
		s.running.Go(func() { s.accept(l) })
	}
	return nil
}

// bind opens the listener and settles what it advertises.
func (l *listener) bind(ctx context.Context) error {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", l.Address)
	if err != nil {
		return fmt.Errorf("kafka listener %s: %w", l.Name, err)
	}
	l.ln = ln
	host, port, err := net.SplitHostPort(ln.Addr().String())
	if err != nil {
		return fmt.Errorf("kafka listener %s: %w", l.Name, err)
	}
	if asked, _, err := net.SplitHostPort(l.Address); err == nil && asked != "" {
		host = asked
	}
	bound, err := strconv.Atoi(port)
	if err != nil {
		return fmt.Errorf("kafka listener %s: %w", l.Name, err)
	}
	return l.advertise(host, bound)
}

// advertise settles what clients are told.
func (l *listener) advertise(boundHost string, boundPort int) error {
	l.host, l.port = l.AdvertisedHost, int32(l.AdvertisedPort)
	if l.port == 0 {
		l.port = int32(boundPort)
	}
	if l.host != "" {
		return nil
	}
	if ip := net.ParseIP(boundHost); ip != nil && ip.IsUnspecified() {
		return fmt.Errorf("kafka listener %s listens on every address (%s): set the advertised host, which clients will connect to", l.Name, l.Address)
	}
	l.host = boundHost
	return nil
}

func (l *listener) advertised() string {
	return net.JoinHostPort(l.host, strconv.Itoa(int(l.port)))
}

// Addr is the address that a listener is bound to, nil if there is none of that
// name or it is not bound.
func (s *Server) Addr(name string) net.Addr {
	for _, l := range s.listeners {
		if l.Name == name && l.ln != nil {
			return l.ln.Addr()
		}
	}
	return nil
}

// accept takes connections until its listener is closed.
func (s *Server) accept(l *listener) {
	for pause := time.Duration(0); ; {
		nc, err := l.ln.Accept()
		switch {
		case err == nil:
			pause = 0
			s.admit(nc, l)
		case s.stopping.Load() || errors.Is(err, net.ErrClosed):
			return
		default: // most likely out of file descriptors
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			s.warn("accept", "cannot accept a connection", "listener", l.Name, "error", err, "retry", pause)
			select {
			case <-time.After(pause):
			case <-s.drain:
				return
			}
		}
	}
}

// admit serves a connection on a goroutine of its own, if the limits allow one
// more.
func (s *Server) admit(nc net.Conn, l *listener) {
	ip := hostOf(nc.RemoteAddr())
	c := s.newConn(nc, l)
	if reason := s.enter(c, ip); reason != "" {
		s.metrics.refused.WithLabelValues(reason).Inc()
		s.warn(reason, "refused a connection", "peer", nc.RemoteAddr().String(), "listener", l.Name, "reason", reason)
		c.hangUp()
		_ = nc.Close() // It was never used.
		return
	}
	gauge := s.metrics.connections.WithLabelValues(l.Name)
	gauge.Inc()
	s.running.Go(func() {
		defer s.leave(c, ip)
		defer gauge.Dec()
		c.serve()
	})
}

// enter counts a connection in, or says which limit it would break.
func (s *Server) enter(c *conn, ip string) (reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.stopping.Load():
		return "stopping"
	case len(s.conns) >= s.lim.MaxConnections:
		return "max.connections"
	case s.perIP[ip] >= s.lim.MaxConnectionsPerIP:
		return "max.connections.per.ip"
	}
	s.conns[c] = struct{}{}
	s.perIP[ip]++
	return ""
}

func (s *Server) leave(c *conn, ip string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	if s.perIP[ip]--; s.perIP[ip] <= 0 {
		delete(s.perIP, ip)
	}
}

// Shutdown stops taking connections and requests, has those in flight answered,
// waiting fetches at once, and closes. If ctx ends first, what is left is cut off
// and ctx's error is returned. It is safe to call it again.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	first := s.stopping.CompareAndSwap(false, true)
	if first {
		close(s.drain)
	}
	for c := range s.conns {
		_ = c.nc.SetReadDeadline(time.Unix(1, 0)) // An error means that it is closed already.
	}
	s.mu.Unlock()
	s.closeListeners()
	done := make(chan struct{})
	go func() { s.running.Wait(); close(done) }()
	defer s.cancel()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	s.cancel()
	s.cutOff()
	<-done
	return fmt.Errorf("kafka server: requests were cut off: %w", ctx.Err())
}

func (s *Server) closeListeners() {
	for _, l := range s.listeners {
		if l.ln != nil {
			_ = l.ln.Close() // It may be closed already.
		}
	}
}

func (s *Server) cutOff() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.nc.Close() // It is cut off either way.
	}
}

// warn logs at most one line per reason and ten seconds, since peers decide how
// often there is a reason.
func (s *Server) warn(reason, msg string, args ...any) {
	if skipped, ok := s.quiet.speak(reason, time.Now()); ok {
		s.log.Warn(msg, append(args, "not_logged", skipped)...)
	}
}

// quieter limits log lines. It is safe for concurrent use.
type quieter struct {
	mu   sync.Mutex
	last map[string]time.Time
	held map[string]int
}

const quietFor = 10 * time.Second

func (q *quieter) speak(reason string, now time.Time) (skipped int, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.last == nil {
		q.last, q.held = map[string]time.Time{}, map[string]int{}
	}
	if t, seen := q.last[reason]; seen && now.Sub(t) < quietFor {
		q.held[reason]++
		return 0, false
	}
	skipped = q.held[reason]
	q.last[reason], q.held[reason] = now, 0
	return skipped, true
}

func hostOf(a net.Addr) string {
	if a == nil {
		return ""
	}
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	return host
}
