// Package admin is the HTTP interface for operators: health, metrics and /v1.
// Handlers return errors; one table maps their kinds to statuses (problem.go),
// and every answer that is not a success is a problem of RFC 9457. The JSON is
// defined in gateway/admin/client. Arrays in it are never null (report 141).
//
// The interface has no authentication: it listens on loopback unless the
// operator allows more. It refuses requests that a browser makes for another
// site, and host names that a site could point at this machine.
//
// The Server owns its listener and the copies that it started in the background.
package admin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/strandline-io/strandline/gateway/admin/client"
	"github.com/strandline-io/strandline/gateway/broker"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/partition"
	"github.com/strandline-io/strandline/tiers/remote"
)

// Limits of what a peer can make the server do.
const (
	maxBody       = 1 << 20
	maxHeader     = 64 << 10
	headerTimeout = 5 * time.Second
	readTimeout   = 30 * time.Second
	writeTimeout  = 30 * time.Second
	idleTimeout   = 2 * time.Minute
)

// Options is what a server is handed.
type Options struct {
	Listen   string // host:port; port 0 takes a free one
	Broker   *broker.Broker
	Gatherer prometheus.Gatherer
	Version  string
	Kafka    func() []string    // addresses that Kafka clients are told; nil: none
	Bucket   string             // without secrets; empty: none
	Config   []client.ConfigKey // without secrets
	Gate     *remote.Gate       // of the bucket; nil: there is none
	Prices   remote.Prices      // of the bucket
	Pool     *partition.Pool    // of the broker's jobs; nil: somebody else's
	Unready  func() string      // why the node does not serve, empty: it does; nil: it always does
	Log      hclog.Logger
}

// Server serves the interface.
type Server struct {
	o        Options
	handler  http.Handler
	listener net.Listener
	http     *http.Server
	started  startup

	life    context.Context // of copies in the background
	endLife context.CancelFunc
	tasks   sync.WaitGroup
}

// New returns a server; Start has it listen.
func New(o Options) *Server {
	if o.Log == nil {
		o.Log = hclog.NewNullLogger()
	}
	if o.Unready == nil {
		o.Unready = func() string { return "" }
	}
	if o.Kafka == nil {
		o.Kafka = func() []string { return nil }
	}
	s := &Server{o: o}
	s.life, s.endLife = context.WithCancel(context.Background())
	s.handler = s.routes()
	return s
}

// Start listens and serves until Shutdown.
func (s *Server) Start(ctx context.Context) error {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", s.o.Listen)
	if err != nil {
		return tiers.E(tiers.Other, "listen for operators", s.o.Listen, "%w (change admin.listen, or stop what uses the port)", err)
	}
	s.listener = ln
	s.http = &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          s.o.Log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
	}
	s.tasks.Go(func() {
		if err := s.http.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			s.o.Log.Error("the admin interface has ended", "err", err)
		}
	})
	return nil
}

// Addr is the address that is listened on, once Start has returned.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Handler is the interface without a listener.
func (s *Server) Handler() http.Handler { return s.handler }

// Shutdown stops accepting, lets requests finish until ctx ends and cuts off the
// others. Copies in the background end.
func (s *Server) Shutdown(ctx context.Context) error {
	s.endLife()
	var err error
	if s.http != nil {
		if err = s.http.Shutdown(ctx); err != nil {
			err = errors.Join(fmt.Errorf("requests to the admin interface were cut off: %w", err), s.http.Close())
		}
	}
	s.tasks.Wait()
	return err
}
