package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counted is the value of a counter or gauge.
func counted(tb testing.TB, m prometheus.Metric) float64 {
	tb.Helper()
	var out dto.Metric
	if err := m.Write(&out); err != nil {
		tb.Fatal(err)
	}
	return out.GetCounter().GetValue() + out.GetGauge().GetValue()
}

// TestT6AnswersComeInOrder: a fetch that waits holds back the answers to what was
// sent after it.
func TestT6AnswersComeInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Limits{})
		defer r.stop()
		r.node.create(t, "known", 1)
		c := r.pipe()
		defer c.nc.Close()
		slow := fetchOf(12, wanted{name: "known"})
		slow.MaxWaitMillis = 3000
		reqs := []kmsg.Request{slow, kmsg.NewPtrApiVersionsRequest(), slow, kmsg.NewPtrMetadataRequest(), produceOf(1, "known", 0, makeBatch(t, 1, 1))}
		go func() {
			for i, req := range reqs {
				_, _ = c.nc.Write(frameOf(req, int32(100+i)))
			}
		}()
		before := time.Now()
		for i, req := range reqs {
			c.receive(req, int32(100+i))
			if want := time.Duration(1+i/2) * 3 * time.Second; i < 4 && time.Since(before) != want {
				t.Errorf("answer %d after %v, want %v", i, time.Since(before), want)
			}
		}
	})
}

// TestManyConnectionsAtOnce: 200, each with its requests, over loopback.
func TestManyConnectionsAtOnce(t *testing.T) {
	r := newRig(t, Limits{})
	defer r.stop()
	r.node.create(t, "known", 4)
	var all sync.WaitGroup
	for i := range 200 {
		c := r.tcp()
		b := makeBatch(t, 3, 100)
		all.Go(func() {
			defer c.nc.Close()
			for n := range 5 {
				p := c.do(produceOf(-1, "known", int32(i%4), append([]byte{}, b...))).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
				if p.ErrorCode != 0 {
					t.Errorf("connection %d: code %d", i, p.ErrorCode)
				}
				resp := c.do(fetchOf(int16(4+(i+n)%9), wanted{name: "known", index: int32(i % 4), offset: 0})).(*kmsg.FetchResponse)
				if len(part(resp, 0).RecordBatches) == 0 {
					t.Errorf("connection %d: no records", i)
				}
			}
		})
	}
	all.Wait()
	total := int64(0)
	for i := range int32(4) {
		total += int64(r.node.log(t, "known", i).View().LogEnd)
	}
	if total != 200*5*3 {
		t.Errorf("%d records, want %d", total, 200*5*3)
	}
	r.stop()
	r.balanced()
	if n := counted(t, r.srv.metrics.connections.WithLabelValues("test")); n != 0 {
		t.Errorf("%v connections are counted as open", n)
	}
	if n := counted(t, r.srv.metrics.requests.WithLabelValues("Produce", "NONE")); n != 1000 {
		t.Errorf("strandline_requests_total{Produce} is %v, want 1000", n)
	}
}

// TestConnectionLimits: of the node, and of an address. A connection that ended
// makes room.
func TestConnectionLimits(t *testing.T) {
	for name, lim := range map[string]Limits{
		"max.connections":        {MaxConnections: 3},
		"max.connections.per.ip": {MaxConnectionsPerIP: 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, lim)
				defer r.stop()
				var cs []*client
				for range 3 {
					cs = append(cs, r.pipe())
				}
				r.pipe().closed()
				for _, c := range cs {
					ask[*kmsg.ApiVersionsResponse](c, kmsg.NewPtrApiVersionsRequest())
				}
				if n := counted(t, r.srv.metrics.refused.WithLabelValues(name)); n != 1 {
					t.Errorf("refused %v, want 1", n)
				}
				cs[1].nc.Close()
				synctest.Wait()
				cs[1] = r.pipe()
				for _, c := range cs {
					ask[*kmsg.ApiVersionsResponse](c, kmsg.NewPtrApiVersionsRequest())
					c.nc.Close()
				}
			})
		})
	}
}

// TestSlowReaderIsDropped, and one that is only slow is not.
func TestSlowReaderIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Limits{})
		defer r.stop()
		r.node.create(t, "known", 1)
		r.node.log(t, "known", 0).fill(t, 3, 1<<20)
		fetch := func() *kmsg.FetchRequest {
			req := fetchOf(12, wanted{name: "known", maxBytes: 8 << 20})
			req.MaxBytes = 8 << 20
			return req
		}
		still := r.pipe()
		still.send(fetch())
		time.Sleep(31 * time.Second)
		synctest.Wait()
		r.balanced() // its memory was given back
		if _, err := still.nc.Write([]byte{0}); err == nil {
			t.Error("a peer that reads nothing is still connected")
		}
		slow := r.pipe()
		defer slow.nc.Close()
		req := fetch()
		corr := slow.send(req)
		slow.nc = &slowConn{Conn: slow.nc}
		before := time.Now()
		resp := slow.receive(req, corr).(*kmsg.FetchResponse)
		if n := len(part(resp, 0).RecordBatches); n < 3<<20 || time.Since(before) < 40*time.Second {
			t.Errorf("%d bytes in %v", n, time.Since(before))
		}
	})
}

// slowConn reads 1 MiB in 20 seconds.
type slowConn struct{ net.Conn }

func (s *slowConn) Read(b []byte) (int, error) {
	b = b[:min(len(b), 64<<10)]
	time.Sleep(20 * time.Second / 16 * time.Duration(len(b)) / (64 << 10))
	return s.Conn.Read(b)
}

// TestPanicClosesItsConnectionOnly, with a line in the log.
func TestPanicClosesItsConnectionOnly(t *testing.T) {
	r := newRig(t, Limits{})
	defer r.stop()
	r.node.create(t, "known", 1)
	bad, good := r.pipe(), r.pipe()
	defer good.nc.Close()
	ask[*kmsg.ApiVersionsResponse](good, kmsg.NewPtrApiVersionsRequest())
	r.node.panics = true
	bad.send(kmsg.NewPtrMetadataRequest())
	bad.closed()
	ask[*kmsg.ApiVersionsResponse](good, kmsg.NewPtrApiVersionsRequest())
	good.nc.Close()
	r.stop()
	if !strings.Contains(r.logs.String(), "[ERROR]") || !strings.Contains(r.logs.String(), "on purpose") {
		t.Errorf("the log does not say so: %s", r.logs)
	}
}

// TestShutdownAnswersWhatItTook: a request that is being handled is answered,
// then the connection is closed and no other is taken.
func TestShutdownAnswersWhatItTook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Limits{})
		r.node.create(t, "known", 1)
		log := r.node.log(t, "known", 0)
		taken, goOn := make(chan struct{}), make(chan struct{})
		log.onAppend = func() { close(taken); <-goOn }
		c, idle := r.pipe(), r.pipe()
		req := produceOf(-1, "known", 0, makeBatch(t, 1, 1))
		corr := c.send(req)
		<-taken
		done := make(chan error)
		go func() { done <- r.srv.Shutdown(context.Background()) }()
		synctest.Wait()
		idle.closed()
		r.pipe().closed()
		select {
		case err := <-done:
			t.Fatalf("shutdown returned %v before the request was answered", err)
		default:
		}
		close(goOn)
		if p := c.receive(req, corr).(*kmsg.ProduceResponse).Topics[0].Partitions[0]; p.ErrorCode != 0 {
			t.Errorf("code %d", p.ErrorCode)
		}
		c.closed()
		if err := <-done; err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if err := r.srv.Shutdown(context.Background()); err != nil {
			t.Errorf("shutdown again: %v", err)
		}
	})
}

// TestShutdownCutsOffWhatDoesNotEnd, when its time is over.
func TestShutdownCutsOffWhatDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Limits{})
		r.node.create(t, "known", 1)
		r.node.log(t, "known", 0).fill(t, 1, 4<<20)
		c := r.pipe() // never reads its answer
		req := fetchOf(12, wanted{name: "known", maxBytes: 8 << 20})
		req.MaxBytes = 8 << 20
		c.send(req)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		before := time.Now()
		if err := r.srv.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(before) != time.Second {
			t.Errorf("shutdown after %v: %v", time.Since(before), err)
		}
		r.balanced()
	})
}

// TestListenersAdvertiseTheirOwnAddress (T9), on real sockets.
func TestListenersAdvertiseTheirOwnAddress(t *testing.T) {
	node := newFakeNode()
	srv, err := newServer(Options{
		Listeners: []Listener{
			{Name: "inside", Address: "127.0.0.1:0"},
			{Name: "outside", Address: "127.0.0.1:0", AdvertisedHost: "kafka.example", AdvertisedPort: 19092},
		},
		Log: hclog.NewNullLogger(), Registerer: prometheus.NewRegistry(),
	}, node, node)
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer srv.Shutdown(context.Background())
	if srv.Addr("nowhere") != nil {
		t.Error("an address of a listener that is not there")
	}
	for name, want := range map[string]string{"inside": srv.Addr("inside").String(), "outside": "kafka.example:19092"} {
		nc, err := net.Dial("tcp", srv.Addr(name).String())
		if err != nil {
			t.Fatal(err)
		}
		c := &client{t: t, nc: nc}
		b := ask[*kmsg.MetadataResponse](c, kmsg.NewPtrMetadataRequest()).Brokers[0]
		if got := net.JoinHostPort(b.Host, fmt.Sprint(b.Port)); got != want {
			t.Errorf("%s: Metadata says %s, want %s", name, got, want)
		}
		find := kmsg.NewPtrFindCoordinatorRequest()
		find.CoordinatorKey = "g"
		f := ask[*kmsg.FindCoordinatorResponse](c, find)
		if got := net.JoinHostPort(f.Host, fmt.Sprint(f.Port)); got != want {
			t.Errorf("%s: FindCoordinator says %s, want %s", name, got, want)
		}
		d := ask[*kmsg.DescribeClusterResponse](c, kmsg.NewPtrDescribeClusterRequest()).Brokers[0]
		if got := net.JoinHostPort(d.Host, fmt.Sprint(d.Port)); got != want {
			t.Errorf("%s: DescribeCluster says %s, want %s", name, got, want)
		}
		nc.Close()
	}
}

func TestStartSaysWhatIsWrong(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for name, c := range map[string]struct{ address, says string }{
		"taken":    {taken.Addr().String(), "address already in use"},
		"wildcard": {"0.0.0.0:0", "set the advertised host"},
		"nonsense": {"not an address", "kafka listener second"},
	} {
		srv, err := newServer(Options{
			Listeners: []Listener{{Name: "first", Address: "127.0.0.1:0"}, {Name: "second", Address: c.address}}, Log: hclog.NewNullLogger(),
		}, newFakeNode(), newFakeNode())
		if err != nil {
			t.Fatal(err)
		}
		if err = srv.Start(t.Context()); err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "second") {
			t.Errorf("%s: %v", name, err)
		}
		if nc, err := net.Dial("tcp", srv.Addr("first").String()); err == nil {
			nc.Close()
			t.Errorf("%s: the first listener was left open", name)
		}
	}
	if _, err := New(Options{Limits: Limits{InFlightRequestBytes: 1000}}); err == nil || !strings.Contains(err.Error(), "socket.request.max.bytes") {
		t.Errorf("limits that do not fit: %v", err)
	}
}

// TestHalfClosedPeerGetsItsAnswer: like `nc -N`, it sends and then only listens.
func TestHalfClosedPeerGetsItsAnswer(t *testing.T) {
	r := newRig(t, Limits{})
	defer r.stop()
	c := r.tcp()
	defer c.nc.Close()
	req := kmsg.NewPtrApiVersionsRequest()
	corr := c.send(req)
	if err := c.nc.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	c.receive(req, corr)
	if _, err := c.nc.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("then: %v", err)
	}
}
