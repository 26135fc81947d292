package kafka

import (
	"context"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/tiers/partition"
)

// sinkLog takes batches and forgets them, and gives the same records again and
// again.
type sinkLog struct {
	*fakeLog
	records []byte
}

func (sinkLog) Append(context.Context, partition.AppendRequest) (partition.AppendResult, error) {
	return partition.AppendResult{Base: 5, AppendTime: -1}, nil
}

func (l sinkLog) Read(_ context.Context, r partition.ReadRequest) (partition.ReadResult, error) {
	buf := r.Alloc(len(l.records))
	return partition.ReadResult{View: l.view, Records: buf[:copy(buf, l.records)]}, nil
}

// sinkNode has one partition, a sinkLog.
type sinkNode struct {
	*fakeNode
	log sinkLog
}

func (n sinkNode) Log(string, int32) (partitionLog, error) { return n.log, nil }

// sinkConn takes everything.
type sinkConn struct{ net.Conn }

func (sinkConn) Write(b []byte) (int, error)      { return len(b), nil }
func (sinkConn) SetWriteDeadline(time.Time) error { return nil }

// bare is a connection whose requests are handled without a network: what is left
// is the server's own work.
func bare(tb testing.TB, records []byte) *conn {
	tb.Helper()
	r := newRig(tb, Limits{})
	tb.Cleanup(r.stop)
	log := newFakeLog()
	log.change(func(v *partition.View) { v.LogEnd, v.HighWatermark, v.LastStable = 1e6, 1e6, 1e6 })
	r.srv.dir = sinkNode{r.node, sinkLog{log, records}}
	here, there := net.Pipe()
	tb.Cleanup(func() { _, _ = here.Close(), there.Close() })
	c := r.srv.newConn(sinkConn{there}, r.at)
	tb.Cleanup(c.hangUp)
	return c
}

func frameIn(req kmsg.Request) frame {
	b := frameOf(req, 1)
	return frame{key: req.Key(), version: req.GetVersion(), corr: 1, body: b[12:], arrived: time.Now()}
}

func produceFrame(tb testing.TB, records int) frame {
	tb.Helper()
	return frameIn(produceOf(-1, "known", 0, makeBatch(tb, records, 100)))
}

func fetchFrame() frame {
	req := fetchOf(12, wanted{name: "known", maxBytes: 64 << 20})
	req.MaxBytes = 50 << 20
	return frameIn(req)
}

// TestAllocationsAreConstantPerRequest, whatever the number of records.
func TestAllocationsAreConstantPerRequest(t *testing.T) {
	produced := func(n int) float64 {
		c, f := bare(t, nil), produceFrame(t, n)
		return testing.AllocsPerRun(50, func() { c.handle(f) })
	}
	fetched := func(n int) float64 {
		c, f := bare(t, makeBatch(t, n, 100)), fetchFrame()
		return testing.AllocsPerRun(50, func() { f.arrived = time.Now(); c.handle(f) })
	}
	for name, allocs := range map[string]func(int) float64{"Produce": produced, "Fetch": fetched} {
		one, many := allocs(1), allocs(5000)
		if many > one+2 {
			t.Errorf("%s: %v allocations for one record, %v for 5,000", name, one, many)
		}
		if one > 60 {
			t.Errorf("%s: %v allocations", name, one)
		}
	}
}

func BenchmarkProduceRequest(b *testing.B) {
	for _, records := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprint("records=", records), func(b *testing.B) {
			c, f := bare(b, nil), produceFrame(b, records)
			b.SetBytes(int64(len(f.body)))
			b.ReportAllocs()
			for b.Loop() {
				c.handle(f)
			}
		})
	}
}

func BenchmarkFetchResponse(b *testing.B) {
	for _, records := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprint("records=", records), func(b *testing.B) {
			c, f := bare(b, makeBatch(b, records, 100)), fetchFrame()
			b.SetBytes(int64(records) * 100)
			b.ReportAllocs()
			for b.Loop() {
				f.arrived = time.Now()
				c.handle(f)
			}
		})
	}
}

// BenchmarkLoopback is a produce and a fetch over a real socket, client included.
func BenchmarkLoopback(b *testing.B) {
	r := newRig(b, Limits{})
	defer r.stop()
	log := newFakeLog()
	log.change(func(v *partition.View) { v.LogEnd, v.HighWatermark, v.LastStable = 1e6, 1e6, 1e6 })
	r.srv.dir = sinkNode{r.node, sinkLog{log, makeBatch(b, 100, 1000)}}
	c := r.tcp()
	defer c.nc.Close()
	req := fetchOf(12, wanted{name: "known"})
	f := frameOf(req, 1)
	b.SetBytes(int64(len(makeBatch(b, 100, 1000))))
	for b.Loop() {
		if _, err := c.nc.Write(f); err != nil {
			b.Fatal(err)
		}
		var size [4]byte
		if _, err := io.ReadFull(c.nc, size[:]); err != nil {
			b.Fatal(err)
		}
		n := int64(size[0])<<24 | int64(size[1])<<16 | int64(size[2])<<8 | int64(size[3])
		if _, err := io.CopyN(io.Discard, c.nc, n); err != nil {
			b.Fatal(err)
		}
	}
}
