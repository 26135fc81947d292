package kafka

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sync/semaphore"
)

// frameStep is how many bytes of a frame are read at a time, and how many may
// come before any memory is set aside for the rest.
const frameStep = 64 << 10

// growth is how much larger than what has arrived a frame's buffer may be. It
// bounds the copies, too: all of them together move a third of the frame.
const growth = 4

// protocolError is a reason to close a connection that lies with the peer.
type protocolError struct {
	reason string // for the metric: few and fixed
	text   string
}

func (e *protocolError) Error() string { return e.text }

func badFrame(reason, format string, args ...any) error {
	return &protocolError{reason, fmt.Sprintf(format, args...)}
}

// errStopping says that the server reads no more requests.
var errStopping = errors.New("the server is stopping")

// frame is a request as it came: its first fields and its bytes.
type frame struct {
	key, version int16
	corr         int32
	body         []byte // after the correlation id
	pooled       buffer // what body lies in, unless it is a Produce
	reserved     int64  // bytes of the budget
	arrived      time.Time
}

// frameReader cuts what a peer sends into frames. It is the connection reader's.
type frameReader struct {
	srv   *Server
	nc    net.Conn
	r     *bufio.Reader
	known bool // the peer has sent a whole request already
}

// next returns the next frame: a *protocolError if it is not one, errStopping,
// or what reading failed with.
func (f *frameReader) next(ctx context.Context) (frame, error) {
	lim := &f.srv.lim
	wait := lim.IdleTimeout
	if !f.known {
		wait = lim.FirstRequestTimeout
	}
	if err := f.within(wait); err != nil {
		return frame{}, err
	}
	var size [4]byte
	if _, err := io.ReadFull(f.r, size[:]); err != nil {
		return frame{}, err
	}
	n := int(int32(binary.BigEndian.Uint32(size[:])))
	if n < 8 || n > lim.MaxRequestBytes {
		return frame{}, notAFrame(size, n, lim.MaxRequestBytes)
	}
	fr, err := f.start(n)
	if err != nil {
		return frame{}, err
	}
	if err := f.body(ctx, &fr, n); err != nil {
		f.srv.release(fr)
		return frame{}, err
	}
	fr.arrived = time.Now()
	f.known = true
	return fr, nil
}

// start reads what tells what kind of request this is, and refuses those that
// would be refused anyway before their bytes are taken in.
func (f *frameReader) start(n int) (frame, error) {
	if err := f.within(f.srv.lim.FrameTimeout); err != nil {
		return frame{}, err
	}
	head, err := f.r.Peek(8)
	if err != nil {
		return frame{}, err
	}
	fr := frame{
		key:     int16(binary.BigEndian.Uint16(head)),
		version: int16(binary.BigEndian.Uint16(head[2:])),
		corr:    int32(binary.BigEndian.Uint32(head[4:])),
	}
	if !f.srv.serves(fr.key, fr.version) && fr.key != keyAPIVersions {
		return frame{}, badFrame("version", "API key %d (%s) version %d is not served", fr.key, apiName(fr.key), fr.version)
	}
	if most := f.srv.lim.MaxControlBytes; fr.key != keyProduce && n > most {
		return frame{}, badFrame("frame", "%s request of %d bytes is larger than the %d that any request but Produce may have",
			apiName(fr.key), n, most)
	}
	_, err = f.r.Discard(8)
	return fr, err
}

// body reads the n-8 bytes that are left of a frame. Small frames are bounded by
// the number of connections; memory for a large one is reserved as a whole, but
// only once its first bytes have arrived, so that a claim costs its sender
// something and never waits in the middle for memory that others wait for too.
func (f *frameReader) body(ctx context.Context, fr *frame, n int) error {
	n -= 8
	buf := f.alloc(fr, min(n, frameStep))
	for have := 0; have < n; {
		if have == len(buf) {
			buf = f.grow(fr, buf, min(n, growth*have))
		}
		to := min(len(buf), have+frameStep)
		if err := f.within(f.srv.lim.FrameTimeout); err != nil {
			return err
		}
		if _, err := io.ReadFull(f.r, buf[have:to]); err != nil {
			return err
		}
		have = to
		if have == frameStep && have < n {
			if err := f.reserve(ctx, fr, n); err != nil {
				return err
			}
		}
	}
	fr.body = buf
	f.srv.metrics.received.Add(float64(n + 12))
	return nil
}

// reserve waits for memory. A request that is decoded into structures is charged
// for those.
func (f *frameReader) reserve(ctx context.Context, fr *frame, n int) error {
	cost := int64(n)
	if fr.key != keyProduce {
		cost *= decodedCost
	}
	cost = min(cost, int64(f.srv.lim.InFlightRequestBytes))
	if err := f.srv.requests.Acquire(ctx, cost); err != nil {
		return errStopping
	}
	fr.reserved = cost
	return nil
}

// decodedCost is how many bytes of memory a byte of a request may become: kmsg
// checks every count against the least size of its elements, of which the worst
// is a topic of Metadata, 48 bytes made of 2.
const decodedCost = 24

func (f *frameReader) alloc(fr *frame, n int) []byte {
	if fr.key == keyProduce {
		return make([]byte, n) // the logs may keep it
	}
	fr.pooled = f.srv.buffers.get(n)
	return fr.pooled.bytes()
}

func (f *frameReader) grow(fr *frame, old []byte, n int) []byte {
	was := fr.pooled
	buf := f.alloc(fr, n)
	copy(buf, old)
	f.srv.buffers.put(was)
	return buf
}

// within sets the deadline of the next read, unless the server is stopping, which
// has set one that is over.
func (f *frameReader) within(d time.Duration) error {
	if err := f.nc.SetReadDeadline(time.Now().Add(d)); err != nil {
		return err
	}
	if f.srv.stopping.Load() {
		return errStopping
	}
	return nil
}

// release ends a frame.
func (s *Server) release(f frame) {
	s.buffers.put(f.pooled)
	if f.reserved > 0 {
		s.requests.Release(f.reserved)
	}
}

// notAFrame says what a size that cannot be one most likely is.
func notAFrame(size [4]byte, n, most int) error {
	switch {
	case size[0] == 0x16 && size[1] == 0x03:
		return badFrame("tls", "the peer speaks TLS, this listener does not: set security.protocol=PLAINTEXT in the client")
	case looksLikeHTTP(size):
		return badFrame("http", "the peer speaks HTTP, this is the Kafka port: the admin interface has a port of its own")
	case n < 8:
		return badFrame("frame", "frame of %d bytes is shorter than a request header", n)
	}
	return badFrame("frame", "frame of %d bytes is larger than socket.request.max.bytes = %d", n, most)
}

func looksLikeHTTP(size [4]byte) bool {
	switch string(size[:]) {
	case "GET ", "POST", "PUT ", "HEAD", "DELE", "OPTI", "PATC", "CONN", "TRAC", "PRI ":
		return true
	}
	return false
}

// newBudget bounds bytes.
func newBudget(n int) *semaphore.Weighted { return semaphore.NewWeighted(int64(n)) }
