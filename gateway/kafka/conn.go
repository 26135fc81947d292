package kafka

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"time"
)

// conn is one connection. Its reader goroutine owns frames; everything else is
// the handler's, which is the goroutine that runs serve.
type conn struct {
	srv      *Server
	nc       net.Conn
	listener *listener
	reader   frameReader
	gone     context.Context // ends when the peer hung up
	hangUp   context.CancelFunc
	done     chan struct{} // closed when the handler is through

	out []byte      // the response being made, reused
	vec net.Buffers // the pieces of it, reused
}

// keepOut is the largest response buffer that a connection keeps.
const keepOut = 256 << 10

func (s *Server) newConn(nc net.Conn, l *listener) *conn {
	c := &conn{srv: s, nc: nc, listener: l, done: make(chan struct{})}
	c.reader = frameReader{srv: s, nc: nc, r: bufio.NewReaderSize(nc, 4<<10)}
	c.gone, c.hangUp = context.WithCancel(s.ctx)
	return c
}

// serve answers requests until the peer hangs up or must be hung up on.
func (c *conn) serve() {
	frames := make(chan frame)
	go c.read(frames)
	for f := range frames {
		if !c.handle(f) {
			break
		}
	}
	close(c.done)
	_ = c.nc.Close() // Nothing can be done about it, and nothing is lost.
	for f := range frames {
		c.srv.release(f)
	}
	c.hangUp()
}

// read is the reader goroutine.
func (c *conn) read(frames chan<- frame) {
	defer close(frames)
	for {
		f, err := c.reader.next(c.gone)
		if err != nil {
			c.end(err)
			return
		}
		select {
		case frames <- f:
		case <-c.done:
			c.srv.release(f)
			return
		}
	}
}

// end notes why nothing more is read. When the server is stopping, what is being
// handled goes on.
func (c *conn) end(err error) {
	if c.srv.stopping.Load() {
		return
	}
	c.hangUp()
	var p *protocolError
	switch {
	case errors.As(err, &p):
		c.complain(p)
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.srv.log.Debug("closed an idle or slow connection", "peer", c.nc.RemoteAddr().String(), "listener", c.listener.Name)
	case !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed):
		c.srv.log.Debug("connection ended", "peer", c.nc.RemoteAddr().String(), "listener", c.listener.Name, "error", err)
	}
}

func (c *conn) complain(p *protocolError) {
	c.srv.metrics.protocol.WithLabelValues(p.reason).Inc()
	c.srv.warn(p.reason, "closed a connection", "peer", c.nc.RemoteAddr().String(), "listener", c.listener.Name, "reason", p.text)
}

// handle answers one request. It returns false if the connection is to be closed.
func (c *conn) handle(f frame) (goOn bool) {
	defer c.srv.release(f)
	defer func() {
		if r := recover(); r != nil {
			c.srv.log.Error("request failed: closing its connection, please report this", "api", apiName(f.key), "version", f.version,
				"peer", c.nc.RemoteAddr().String(), "panic", r, "stack", string(debug.Stack()))
			goOn = false
		}
	}()
	req, err := c.srv.decode(f)
	if err != nil {
		c.end(err)
		return false
	}
	a := c.srv.apis[f.key]
	ans := a.serve(c.srv, &call{
		ctx: c.srv.ctx, gone: c.gone, conn: c, version: f.version, req: req, arrived: f.arrived,
	})
	c.srv.metrics.requests.WithLabelValues(apiName(f.key), codeName(ans.code)).Inc()
	c.srv.metrics.duration.WithLabelValues(apiName(f.key)).Observe(time.Since(f.arrived).Seconds())
	if ans.fetch != nil {
		defer ans.fetch.release()
	}
	if ans.hangUp {
		return false
	}
	if err := c.write(f, ans); err != nil {
		c.srv.log.Debug("cannot send a response", "peer", c.nc.RemoteAddr().String(), "api", apiName(f.key), "error", err)
		return false
	}
	return true
}

// write sends a response.
func (c *conn) write(f frame, a answer) error {
	c.out, c.vec = c.out[:0], c.vec[:0]
	var size int
	switch {
	case a.fetch != nil:
		c.out = appendHeader(c.out, f.corr, f.key, a.fetch.version >= 12)
		c.out, c.vec, size = a.fetch.encode(c.out, c.vec)
	case a.resp != nil:
		c.out = appendHeader(c.out, f.corr, f.key, a.resp.IsFlexible())
		c.out = a.resp.AppendTo(c.out)
		c.vec = append(c.vec, c.out)
		size = len(c.out)
	default:
		return nil
	}
	if size-4 > 1<<31-1 {
		return fmt.Errorf("response of %d bytes does not fit a frame", size)
	}
	binary.BigEndian.PutUint32(c.out, uint32(size-4))
	err := c.send(c.vec)
	c.srv.metrics.sent.Add(float64(size))
	clear(c.vec[:cap(c.vec)])
	if cap(c.out) > keepOut {
		c.out = nil
	}
	return err
}

// sendStep is how much must get through to a slow peer within WriteTimeout.
const sendStep = 1 << 20

// send writes vec, a step at a time, so that a peer is dropped for standing still
// and not for asking for a lot.
func (c *conn) send(vec net.Buffers) error {
	for len(vec) > 0 {
		var step net.Buffers
		step, vec = cut(vec, sendStep)
		if err := c.nc.SetWriteDeadline(time.Now().Add(c.srv.lim.WriteTimeout)); err != nil {
			return err
		}
		if _, err := step.WriteTo(c.nc); err != nil {
			return err
		}
	}
	return nil
}

// cut takes buffers of n bytes, or all there are, off the front of vec. A single
// buffer that is larger is divided, in vec itself.
func cut(vec net.Buffers, n int) (front, rest net.Buffers) {
	total := 0
	for i, b := range vec {
		if total+len(b) > n {
			if i > 0 {
				return vec[:i:i], vec[i:]
			}
			front = net.Buffers{b[:n:n]}
			vec[0] = b[n:]
			return front, vec
		}
		total += len(b)
	}
	return vec, nil
}
