package local

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/batch"
)

// maxRelative is the largest distance of an offset from the base of its segment:
// Kafka keeps it in a signed 32-bit integer.
const maxRelative = math.MaxInt32

// The windows that walkers read.
const (
	hopWindow  = 8 << 10 // to go from header to header
	scanWindow = 1 << 20 // to read every byte
)

// damage says where the bytes of a log stop to be batches.
type damage struct {
	pos int64
	why string
}

func (d damage) Error() string { return fmt.Sprintf("at byte %d: %s", d.pos, d.why) }

// walker goes through the batches of a segment. It reads ahead into its window,
// so it must not be used by two goroutines at once.
type walker struct {
	r   io.ReaderAt
	end int64 // bytes of the file that count
	// upto is the end of the segment's offsets. The CRC does not cover a batch's
	// base offset, so a wrong one shows only by its neighbours.
	upto tiers.Offset
	buf  []byte

	at, n int64 // the window holds bytes [at, at+n)
	bytes int64 // read so far
}

func newWalker(r io.ReaderAt, end int64, upto tiers.Offset, window int) *walker {
	return &walker{r: r, end: end, upto: upto, buf: make([]byte, window)}
}

// view returns the n bytes at pos, which must be below end. They are valid until
// the next call.
func (w *walker) view(pos, n int64) ([]byte, error) {
	if pos < w.at || pos+n > w.at+w.n {
		if err := w.fill(pos, n); err != nil {
			return nil, err
		}
	}
	return w.buf[pos-w.at : pos-w.at+n : pos-w.at+n], nil
}

func (w *walker) fill(pos, n int64) error {
	if int64(len(w.buf)) < n {
		w.buf = make([]byte, n)
	}
	w.at, w.n = pos, 0
	want := min(int64(len(w.buf)), w.end-pos)
	got, err := w.r.ReadAt(w.buf[:want], pos)
	w.bytes += int64(got)
	if int64(got) < want {
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("read %d bytes at %d: %w", want, pos, err)
	}
	w.n = want
	return nil
}

// header returns the header of the batch at pos, whose base offset must not be
// below least. A damage error says that there is no batch; any other error is
// the disk's.
func (w *walker) header(pos int64, least tiers.Offset) (batch.Header, error) {
	if w.end-pos < batch.HeaderSize {
		return batch.Header{}, damage{pos, fmt.Sprintf("%d bytes are less than a batch header", w.end-pos)}
	}
	b, err := w.view(pos, batch.HeaderSize)
	if err != nil {
		return batch.Header{}, err
	}
	h, err := batch.Parse(b)
	switch {
	case err != nil:
		return h, damage{pos, err.Error()}
	case h.Magic != 2:
		return h, damage{pos, fmt.Sprintf("magic is %d, not 2", h.Magic)}
	case h.LastOffsetDelta < 0 || h.BaseOffset < least || h.BaseOffset >= w.upto || h.Next() > w.upto:
		return h, damage{pos, fmt.Sprintf("offsets %d to %d are not in [%d,%d)", h.BaseOffset, h.Last(), least, w.upto)}
	case h.Size() > w.end-pos:
		return h, damage{pos, fmt.Sprintf("batch at offset %d has %d bytes, %d are left", h.BaseOffset, h.Size(), w.end-pos)}
	}
	return h, nil
}

// batch is header, and all the bytes of the batch, whose CRC holds.
func (w *walker) batch(pos int64, least tiers.Offset) (batch.Header, []byte, error) {
	h, err := w.header(pos, least)
	if err != nil {
		return h, nil, err
	}
	b, err := w.view(pos, h.Size())
	if err != nil {
		return h, nil, err
	}
	if _, err := batch.CheckStored(b); err != nil {
		return h, nil, damage{pos, err.Error()}
	}
	return h, b, nil
}

// resync looks for the first sound batch that begins behind pos and below limit
// and whose base offset is in [least, most). ok is false if there is none.
func (w *walker) resync(pos, limit int64, least, most tiers.Offset) (h batch.Header, at int64, ok bool, err error) {
	for pos++; pos <= limit-batch.HeaderSize; pos++ {
		b, err := w.view(pos, batch.HeaderSize)
		if err != nil {
			return h, 0, false, err
		}
		if base := tiers.Offset(binary.BigEndian.Uint64(b)); base < least || base >= most {
			continue
		}
		h, _, err = w.batch(pos, least)
		if err == nil {
			return h, pos, true, nil
		}
		if !errors.As(err, new(damage)) {
			return h, 0, false, err
		}
	}
	return h, 0, false, nil
}
