package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// rig is a server without a listener, over a fake node.
type rig struct {
	t    testing.TB
	node *fakeNode
	srv  *Server
	at   *listener
	logs *strings.Builder
}

// newRig returns a server that ends with the test. In a synctest bubble, end it
// with stop before the bubble ends.
func newRig(tb testing.TB, lim Limits) *rig {
	tb.Helper()
	r := &rig{t: tb, node: newFakeNode(), logs: &strings.Builder{}}
	srv, err := newServer(Options{Limits: lim, Log: hclog.New(&hclog.LoggerOptions{Output: r.logs, Level: hclog.Warn})}, r.node, r.node)
	if err != nil {
		tb.Fatal(err)
	}
	r.srv = srv
	r.at = &listener{Listener: Listener{Name: "test"}, host: "localhost", port: 9092}
	return r
}

func (r *rig) stop() {
	r.t.Helper()
	if err := r.srv.Shutdown(context.Background()); err != nil {
		r.t.Error(err)
	}
}

// pipe connects without a network.
func (r *rig) pipe() *client {
	here, there := net.Pipe()
	r.srv.admit(there, r.at)
	return &client{t: r.t, nc: here}
}

// tcp connects over loopback.
func (r *rig) tcp() *client {
	r.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	defer ln.Close()
	nc, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		r.t.Fatal(err)
	}
	there, err := ln.Accept()
	if err != nil {
		r.t.Fatal(err)
	}
	r.srv.admit(there, r.at)
	return &client{t: r.t, nc: nc}
}

// client speaks kmsg over a connection.
type client struct {
	t    testing.TB
	nc   net.Conn
	corr int32
}

// frameOf encodes a request.
func frameOf(req kmsg.Request, corr int32) []byte {
	b := make([]byte, 4, 64)
	b = binary.BigEndian.AppendUint16(b, uint16(req.Key()))
	b = binary.BigEndian.AppendUint16(b, uint16(req.GetVersion()))
	b = binary.BigEndian.AppendUint32(b, uint32(corr))
	b = append(b, 0, 4, 't', 'e', 's', 't')
	if req.IsFlexible() {
		b = append(b, 0)
	}
	b = req.AppendTo(b)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

func (c *client) send(req kmsg.Request) int32 {
	c.t.Helper()
	c.corr++
	if _, err := c.nc.Write(frameOf(req, c.corr)); err != nil {
		c.t.Fatalf("send %s: %v", kmsg.NameForKey(req.Key()), err)
	}
	return c.corr
}

// raw reads one frame.
func (c *client) raw() (corr int32, body []byte, err error) {
	var size [4]byte
	if _, err := io.ReadFull(c.nc, size[:]); err != nil {
		return 0, nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(c.nc, b); err != nil {
		return 0, nil, err
	}
	return int32(binary.BigEndian.Uint32(b)), b[4:], nil
}

// receive reads the response to req, and has it encoded again, which must give
// the same bytes: nothing was left over, misplaced or lost.
func (c *client) receive(req kmsg.Request, corr int32) kmsg.Response {
	c.t.Helper()
	got, body, err := c.raw()
	if err != nil {
		c.t.Fatalf("%s v%d: no response: %v", kmsg.NameForKey(req.Key()), req.GetVersion(), err)
	}
	if got != corr {
		c.t.Fatalf("%s v%d: response to %d, want %d", kmsg.NameForKey(req.Key()), req.GetVersion(), got, corr)
	}
	resp := req.ResponseKind()
	if resp.IsFlexible() && req.Key() != keyAPIVersions {
		if len(body) == 0 || body[0] != 0 {
			c.t.Fatalf("%s v%d: response header without tags: %x", kmsg.NameForKey(req.Key()), req.GetVersion(), body[:min(8, len(body))])
		}
		body = body[1:]
	}
	if err := resp.ReadFrom(body); err != nil {
		c.t.Fatalf("%s v%d: response does not decode: %v", kmsg.NameForKey(req.Key()), req.GetVersion(), err)
	}
	if again := resp.AppendTo(nil); string(again) != string(body) {
		c.t.Fatalf("%s v%d: response is not what kmsg makes of it:\n%x\n%x", kmsg.NameForKey(req.Key()), req.GetVersion(), body, again)
	}
	return resp
}

// do sends a request and returns its response.
func (c *client) do(req kmsg.Request) kmsg.Response {
	c.t.Helper()
	corr := c.send(req)
	return c.receive(req, corr)
}

// closed fails the test unless the server has closed the connection.
func (c *client) closed() {
	c.t.Helper()
	_ = c.nc.SetReadDeadline(time.Now().Add(30 * time.Second))
	if _, _, err := c.raw(); err == nil || isTimeout(err) {
		c.t.Fatalf("the connection is open, want it closed (%v)", err)
	}
}

func isTimeout(err error) bool {
	var ne net.Error
	ok := errors.As(err, &ne)
	return ok && ne.Timeout()
}

// ask is do with the type of the response.
func ask[R kmsg.Response](c *client, req kmsg.Request) R {
	c.t.Helper()
	resp, ok := c.do(req).(R)
	if !ok {
		c.t.Fatalf("response to %s has type %T", kmsg.NameForKey(req.Key()), resp)
	}
	return resp
}
