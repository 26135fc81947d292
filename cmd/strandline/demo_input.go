package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// maxLine is the longest line of a user's file that becomes one record.
const maxLine = 512 << 10

// digest stands for a record: its place, key, value, headers and timestamp.
type digest [sha256.Size]byte

func digestOf(r *kgo.Record) digest {
	h := sha256.New()
	var n [8]byte
	write := func(b []byte) {
		binary.BigEndian.PutUint64(n[:], uint64(len(b)))
		h.Write(n[:])
		h.Write(b)
	}
	for _, v := range []int64{int64(r.Partition), r.Offset, r.Timestamp.UnixMilli()} {
		binary.BigEndian.PutUint64(n[:], uint64(v))
		h.Write(n[:])
	}
	if r.Key == nil {
		write([]byte("no key"))
	} else {
		write([]byte("a key"))
	}
	write(r.Key)
	write(r.Value)
	for _, x := range r.Headers {
		write([]byte(x.Key))
		write(x.Value)
	}
	return digest(h.Sum(nil))
}

// input calls f with each record of the demo: the lines of a file, or count made
// records, the same every time.
func input(file string, count int, f func(*kgo.Record)) error {
	if file == "" {
		made(count, f)
		return nil
	}
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	return errors.Join(lines(file, in, f), in.Close())
}

// made are measurements of a few hundred machines: text that compresses as such
// text does.
func made(count int, f func(*kgo.Record)) {
	random := rand.New(rand.NewPCG(2026, 1)) //nolint:gosec // made the same every time
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	states := []string{"ok", "ok", "ok", "ok", "degraded", "failed"}
	for i := range count {
		machine := fmt.Sprintf("machine-%03d", random.IntN(300))
		f(&kgo.Record{
			Key: []byte(machine),
			Value: fmt.Appendf(nil, `{"seq":%d,"machine":%q,"state":%q,"load":%.3f,"temperature":%.2f,"trace":"%016x%016x"}`,
				i, machine, states[random.IntN(len(states))], random.Float64(), 40+20*random.NormFloat64(), random.Uint64(), random.Uint64()),
			Headers:   []kgo.RecordHeader{{Key: "source", Value: []byte("demo")}},
			Timestamp: start.Add(time.Duration(i) * 250 * time.Millisecond),
		})
	}
}

// lines makes a record of each line; lines that are too long are cut into
// several.
func lines(name string, in io.Reader, f func(*kgo.Record)) error {
	r := bufio.NewReaderSize(in, maxLine)
	now := time.Now()
	for i := int64(0); ; i++ {
		line, err := r.ReadSlice('\n')
		switch {
		case len(line) > 0:
			f(&kgo.Record{
				Value:     append([]byte{}, line...),
				Headers:   []kgo.RecordHeader{{Key: "line", Value: fmt.Append(nil, i)}},
				Timestamp: now,
			})
		case errors.Is(err, io.EOF) && i == 0:
			return fmt.Errorf("%s is empty: there is nothing to produce", name)
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return fmt.Errorf("read %s: %w", name, err)
		}
	}
}
