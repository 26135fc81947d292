package kafka

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/tiers"
)

// TestRows1and2NotAFrame: the connection is closed on the first four bytes,
// nothing is set aside, and the log says what it was, once.
func TestRows1and2NotAFrame(t *testing.T) {
	for name, c := range map[string]struct {
		bytes, reason, says string
	}{
		"largest":         {"\x7f\xff\xff\xff", "frame", "2147483647 bytes is larger"},
		"negative":        {"\xff\xff\xff\xff", "frame", "-1 bytes is shorter"},
		"zero":            {"\x00\x00\x00\x00", "frame", "0 bytes is shorter"},
		"short":           {"\x00\x00\x00\x07", "frame", "7 bytes is shorter"},
		"one more":        {"\x06\x40\x00\x01", "frame", "104857601 bytes is larger"},
		"tls":             {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", "tls", "TLS"},
		"http":            {"GET / HTTP/1.1\r\n\r\n", "http", "HTTP"},
		"http post":       {"POST /topics HTTP/1.1\r\n\r\n", "http", "HTTP"},
		"large control":   {"\x00\x80\x00\x01\x00\x03\x00\x01\x00\x00\x00\x01", "frame", "Metadata request"},
		"unknown version": {"\x00\x00\x00\x20\x00\x03\x00\x77\x00\x00\x00\x01", "version", "version 119"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Limits{})
			defer r.stop()
			for range 3 {
				c2 := r.pipe()
				go func() { _, _ = c2.nc.Write([]byte(c.bytes)) }() // it is closed in the middle
				c2.closed()
			}
			r.stop()
			if n := strings.Count(r.logs.String(), "[WARN]"); n != 1 || !strings.Contains(r.logs.String(), c.says) {
				t.Errorf("%d lines that should say %q: %s", n, c.says, r.logs)
			}
			if n := counted(t, r.srv.metrics.protocol.WithLabelValues(c.reason)); n != 3 {
				t.Errorf("strandline_protocol_errors_total{reason=%q} is %v, want 3", c.reason, n)
			}
		})
	}
}

// TestRow1ALyingLengthAllocatesNothing: memory follows what has arrived.
func TestRow1ALyingLengthAllocatesNothing(t *testing.T) {
	r := newRig(t, Limits{})
	defer r.stop()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var cs []*client
	for range 50 {
		c := r.pipe()
		cs = append(cs, c)
		head := []byte{0x06, 0x40, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1} // 100 MiB of Produce
		if _, err := c.nc.Write(head); err != nil {
			t.Fatal(err)
		}
		if _, err := c.nc.Write(make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 50*(frameStep+32<<10) {
		t.Errorf("50 frames that claim 100 MiB took %d bytes", grown)
	}
	if !r.srv.requests.TryAcquire(int64(r.srv.lim.InFlightRequestBytes)) {
		t.Error("a claim took from the budget")
	} else {
		r.srv.requests.Release(int64(r.srv.lim.InFlightRequestBytes))
	}
	for _, c := range cs {
		c.nc.Close()
	}
}

// TestRow3Slowloris: who does not get on with a request is dropped, whether it
// never begins, never ends or does so by the byte; who does stays.
func TestRow3Slowloris(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Limits{})
		defer r.stop()
		open := func(c *client) bool {
			_, err := c.nc.Write([]byte{0})
			return err == nil
		}
		silent, started, good := r.pipe(), r.pipe(), r.pipe()
		defer good.nc.Close()
		_, _ = started.nc.Write([]byte{0, 0, 0, 100, 0, 3, 0, 1, 0, 0, 0, 1})
		time.Sleep(9 * time.Second)
		ask[*kmsg.ApiVersionsResponse](good, kmsg.NewPtrApiVersionsRequest())
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if open(silent) || open(started) {
			t.Error("a connection that gets nowhere is open after 11 s")
		}
		time.Sleep(9 * time.Minute)
		ask[*kmsg.ApiVersionsResponse](good, kmsg.NewPtrApiVersionsRequest())
		time.Sleep(10*time.Minute + time.Second)
		synctest.Wait()
		if open(good) {
			t.Error("an idle connection is open after 10 minutes")
		}
	})
}

// TestRow4ACountThatCannotBe: the connection is closed, nothing is set aside.
func TestRow4ACountThatCannotBe(t *testing.T) {
	r := newRig(t, Limits{})
	defer r.stop()
	for _, a := range apis() {
		for v := a.min; v <= a.max; v++ {
			req := kmsg.RequestForKey(a.key)
			req.SetVersion(v)
			head := frameOf(req, 1)[12:]
			head = head[:len(head)-len(req.AppendTo(nil))]
			body := append(bytes.Clone(head), bytes.Repeat([]byte{0x7f, 0xff, 0xff, 0xff}, 20)...)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := r.srv.decode(frame{key: a.key, version: v, body: body})
			runtime.ReadMemStats(&after)
			if grown := after.TotalAlloc - before.TotalAlloc; grown > 64<<10 {
				t.Errorf("%s v%d: %d bytes for a request of %d (error %v)", apiName(a.key), v, grown, len(body), err)
			}
		}
	}
	c := r.pipe()
	b := []byte{0, 0, 0, 18, 0, 3, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0}
	if _, err := c.nc.Write(b); err != nil {
		t.Fatal(err)
	}
	c.closed()
}

// TestDecodedCostHolds: what the budget charges for a request is no less than
// what decoding it takes, for the worst that fits a frame: all empty elements.
func TestDecodedCostHolds(t *testing.T) {
	for _, a := range apis() {
		if a.key == keyProduce {
			continue
		}
		for v := a.min; v <= a.max; v++ {
			req := kmsg.RequestForKey(a.key)
			req.SetVersion(v)
			lists := listsOf(reflect.ValueOf(req).Elem())
			for _, name := range lists {
				most := kmsg.RequestForKey(a.key)
				most.SetVersion(v)
				f := reflect.ValueOf(most).Elem().FieldByName(name)
				f.Set(reflect.MakeSlice(f.Type(), 10_000, 10_000))
				body := most.AppendTo(nil)
				if len(body) < 10_000 {
					continue // not in this version
				}
				size := int(f.Type().Elem().Size()) * 10_000
				if size > decodedCost*len(body) {
					t.Errorf("%s v%d %s: %d bytes become %d, which is more than %d times as much", apiName(a.key), v, name, len(body), size, decodedCost)
				}
			}
		}
	}
}

func listsOf(v reflect.Value) (names []string) {
	for i := range v.NumField() {
		if f := v.Type().Field(i); f.Type.Kind() == reflect.Slice {
			names = append(names, f.Name)
		}
	}
	return names
}

// TestFrameOfAnySizeArrivesWhole, in pieces of any size.
func TestFrameOfAnySizeArrivesWhole(t *testing.T) {
	r := newRig(t, Limits{})
	defer r.stop()
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, key := range []int16{keyProduce, 8} {
		for _, n := range []int{0, 1, 100, frameStep - 1, frameStep, frameStep + 1, 4 * frameStep, 4*frameStep + 1, 1_000_000, 5_000_000} {
			here, there := net.Pipe()
			body := make([]byte, n)
			for i := range body {
				body[i] = byte(rnd.Uint32())
			}
			whole := binary.BigEndian.AppendUint32(nil, uint32(n+8))
			whole = binary.BigEndian.AppendUint16(whole, uint16(key))
			whole = append(whole, 0, 5, 0, 0, 0, 9)
			whole = append(whole, body...)
			go func() {
				for rest := whole; len(rest) > 0; {
					k := min(len(rest), 1+rnd.IntN(100_000))
					if _, err := here.Write(rest[:k]); err != nil {
						return
					}
					rest = rest[k:]
				}
			}()
			c := r.srv.newConn(there, r.at)
			f, err := c.reader.next(t.Context())
			if err != nil {
				t.Fatalf("API %d, %d bytes: %v", key, n, err)
			}
			if f.key != key || f.version != 5 || f.corr != 9 || !bytes.Equal(f.body, body) {
				t.Errorf("API %d, %d bytes: key %d version %d id %d, body differs %v", key, n, f.key, f.version, f.corr, !bytes.Equal(f.body, body))
			}
			if (f.reserved > 0) != (n > frameStep) {
				t.Errorf("API %d, %d bytes: reserved %d", key, n, f.reserved)
			}
			r.srv.release(f)
			_, _ = here.Close(), there.Close()
		}
	}
	r.balanced()
}

// TestNothingIsReadOnceTheServerStops, also if the reader sets its deadline after
// Shutdown did.
func TestNothingIsReadOnceTheServerStops(t *testing.T) {
	r := newRig(t, Limits{})
	r.stop()
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	c := r.srv.newConn(there, r.at)
	if _, err := c.reader.next(t.Context()); !errors.Is(err, errStopping) {
		t.Errorf("got %v", err)
	}
}

// TestLargeRequestsWaitForMemory, and go on when there is some.
func TestLargeRequestsWaitForMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Limits{MaxRequestBytes: 1 << 20, InFlightRequestBytes: 1 << 20})
		defer r.stop()
		r.node.create(t, "known", 1)
		log := r.node.log(t, "known", 0)
		held, go1 := make(chan struct{}, 1), make(chan struct{})
		log.onAppend = func() { held <- struct{}{}; <-go1 }
		first, second := r.pipe(), r.pipe()
		defer first.nc.Close()
		defer second.nc.Close()
		big := func() *kmsg.ProduceRequest { return produceOf(1, "known", 0, makeBatch(t, 1, 600_000)) }
		corr1 := first.send(big())
		<-held
		sent := make(chan int32)
		go func() { sent <- second.send(big()) }()
		synctest.Wait()
		select {
		case <-sent:
			t.Fatal("a second large request was taken in while there was no memory")
		default:
		}
		close(go1)
		first.receive(big(), corr1)
		<-held
		second.receive(big(), <-sent)
		synctest.Wait()
		r.balanced()
	})
}

// FuzzFrames feeds a connection with anything. It must answer or close, and never
// wait for more than was announced or panic.
func FuzzFrames(f *testing.F) {
	for _, a := range apis() {
		for v := a.min; v <= a.max; v++ {
			for _, req := range samples(f, a.key, v, tiers.TopicID{1}) {
				f.Add(frameOf(req, 1))
			}
		}
	}
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add([]byte{0, 0, 0, 9, 0, 18, 0, 3, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := newRig(t, Limits{MaxFetchWait: time.Millisecond})
		r.node.create(t, "known", 1)
		here, there := net.Pipe()
		r.srv.admit(there, r.at)
		go func() { _, _ = io.Copy(io.Discard, here) }()
		_, _ = here.Write(b) // it may be closed before it took all
		here.Close()
		r.stop()
		r.balanced()
		if strings.Contains(r.logs.String(), "panic") {
			t.Fatal(r.logs.String())
		}
	})
}

// FuzzDecode decodes any bytes as any request, in less than a millisecond per
// kilobyte (row 5).
func FuzzDecode(f *testing.F) {
	for _, a := range apis() {
		for v := a.min; v <= a.max; v++ {
			for _, req := range samples(f, a.key, v, tiers.TopicID{1}) {
				f.Add(a.key, v, frameOf(req, 1)[12:])
			}
		}
	}
	f.Add(int16(3), int16(12), []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	f.Add(int16(1), int16(12), append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f}, make([]byte, 200)...))
	srv, err := newServer(Options{}, newFakeNode(), newFakeNode())
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, key, version int16, body []byte) {
		if !srv.serves(key, version) {
			return
		}
		limit := time.Millisecond * time.Duration(1+len(body)>>10)
		best := time.Hour // of several: the machine may be busy
		for try := 0; try < 20 && best > limit; try++ {
			before := time.Now()
			_, _ = srv.decode(frame{key: key, version: version, body: body})
			best = min(best, time.Since(before))
		}
		if best > limit {
			t.Errorf("%s v%d: %v for %d bytes", apiName(key), version, best, len(body))
		}
	})
}

func TestSkipTags(t *testing.T) {
	for name, c := range map[string]struct {
		in   string
		rest string
		ok   bool
	}{
		"none":           {"\x00ab", "ab", true},
		"two":            {"\x02\x00\x01x\x05\x00rest", "rest", true},
		"too long a tag": {"\x01\x00\x7f", "", false},
		"count too big":  {"\xff\xff\xff\xff\x0f\x00\x00", "", false},
		"row 5: varint":  {strings.Repeat("\xff", 11), "", false},
		"33 bits":        {"\xff\xff\xff\xff\x1f", "", false},
		"empty":          {"", "", false},
	} {
		rest, ok := skipTags([]byte(c.in))
		if ok != c.ok || ok && string(rest) != c.rest {
			t.Errorf("%s: %q, %v", name, rest, ok)
		}
	}
}

func TestQuietSaysHowManyItHeldBack(t *testing.T) {
	var q quieter
	at := time.Unix(1000, 0)
	var got []string
	for _, s := range []int{0, 1, 9, 10, 11, 30} {
		n, ok := q.speak("a", at.Add(time.Duration(s)*time.Second))
		got = append(got, fmt.Sprint(s, ok, n))
	}
	if want := "[0 true 0 1 false 0 9 false 0 10 true 2 11 false 0 30 true 1]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
	if _, ok := q.speak("b", at); !ok {
		t.Error("another reason was held back")
	}
}
