package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/strandline-io/strandline/tiers"
)

// errTooLarge says that a batch would decompress to more than the cap.
var errTooLarge = errors.New("decompresses to too much")

// decompress returns the records of a batch; they alias src or d.buf. A bomb is
// given up when the cap is reached: no more than the cap is ever held, plus
// what the codec needs for one block.
func (d *Decoder) decompress(c Codec, src []byte) ([]byte, error) {
	out, err := src, error(nil)
	switch c {
	case None:
	case Gzip:
		out, err = d.gunzip(src)
	case Snappy:
		out, err = d.unsnappy(src)
	case LZ4:
		out, err = d.unlz4(src)
	case Zstd:
		out, err = d.unzstd(src)
	default:
		return nil, tiers.E(tiers.UnsupportedCompression, "decompress batch", "", "codec %d", int8(c))
	}
	switch {
	case errors.Is(err, errTooLarge):
		return nil, tiers.E(tiers.MessageTooLarge, "decompress batch", "", "%d bytes of %s are more than %d bytes when decompressed", len(src), c, d.max)
	case err != nil:
		return nil, tiers.E(tiers.CorruptMessage, "decompress batch", "", "%d bytes of %s: %w", len(src), c, err)
	}
	return out, nil
}

func (d *Decoder) gunzip(src []byte) ([]byte, error) {
	if d.gzip == nil {
		d.gzip = new(gzip.Reader)
	}
	if err := d.gzip.Reset(bytes.NewReader(src)); err != nil {
		return nil, err
	}
	return d.readAll(d.gzip, len(src))
}

func (d *Decoder) unlz4(src []byte) ([]byte, error) {
	if d.lz4 == nil {
		d.lz4 = lz4.NewReader(nil)
		if err := d.lz4.Apply(lz4.ConcurrencyOption(1)); err != nil {
			return nil, err
		}
	}
	d.lz4.Reset(bytes.NewReader(src))
	return d.readAll(d.lz4, len(src))
}

// readAll reads r to its end into d.buf.
func (d *Decoder) readAll(r io.Reader, n int) ([]byte, error) {
	buf := d.buf[:0]
	for {
		if len(buf) == cap(buf) {
			if int64(cap(buf)) > d.max {
				return nil, errTooLarge
			}
			buf = append(make([]byte, 0, d.grow(cap(buf), n)+1), buf...)
		}
		k, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+k]
		d.buf = buf
		switch {
		case int64(len(buf)) > d.max:
			return nil, errTooLarge
		case errors.Is(err, io.EOF):
			return buf, nil
		case err != nil:
			return nil, err
		}
	}
}

// grow returns the next size of a buffer of size have for n compressed bytes:
// never more than the cap.
func (d *Decoder) grow(have, n int) int {
	return int(min(max(int64(have)*2, int64(n)*4, 4096), d.max))
}

// zstdBlock is what one block of zstd decodes to at most, and what the decoder
// wants behind it.
const zstdBlock = 128<<10 + 16

// unzstd decodes into a buffer of limited capacity and starts again with a larger
// one if it did not do. The decoder's own limit of memory would refuse each frame
// with a window above the cap, however small its content is.
//
// Decoding stops for want of room less than a block before the end of the buffer;
// what stops earlier is corrupt. The last buffer has room for a block more than
// the cap, so a bomb is known by having come beyond the cap.
func (d *Decoder) unzstd(src []byte) ([]byte, error) {
	if d.zstd == nil {
		z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecodeAllCapLimit(true))
		if err != nil {
			return nil, err
		}
		d.zstd = z
	}
	most := int(d.max) + zstdBlock
	size := min(max(cap(d.buf), d.grow(0, len(src))+zstdBlock), most)
	for {
		if cap(d.buf) < size {
			d.buf = make([]byte, 0, size)
		}
		out, err := d.zstd.DecodeAll(src, d.buf[:0:size])
		full := len(out) > size-zstdBlock || errors.Is(err, zstd.ErrDecoderSizeExceeded)
		switch {
		case int64(len(out)) > d.max || err != nil && full && size == most:
			return nil, errTooLarge
		case err == nil || !full:
			return out, err
		}
		size = min(size*4, most)
	}
}

// xerialMagic starts the framing of snappy-java, which Java clients write: two
// versions of 4 bytes follow, then blocks of raw snappy, each behind its length.
// Other clients write one block of raw snappy.
const (
	xerialMagic  = "\x82SNAPPY\x00"
	xerialHeader = len(xerialMagic) + 8
)

func (d *Decoder) unsnappy(src []byte) ([]byte, error) {
	if !bytes.HasPrefix(src, []byte(xerialMagic)) {
		d.buf = d.buf[:0]
		return d.snappyBlock(src)
	}
	if len(src) < xerialHeader {
		return nil, io.ErrUnexpectedEOF
	}
	src, d.buf = src[xerialHeader:], d.buf[:0]
	for len(src) > 0 {
		if len(src) < 4 {
			return nil, io.ErrUnexpectedEOF
		}
		n := binary.BigEndian.Uint32(src)
		if src = src[4:]; uint64(n) > uint64(len(src)) {
			return nil, io.ErrUnexpectedEOF
		}
		if _, err := d.snappyBlock(src[:n]); err != nil {
			return nil, err
		}
		src = src[n:]
	}
	return d.buf, nil
}

// snappyBlock appends the raw snappy block src to d.buf. The length that the
// block claims is looked at before a byte is allocated for it, and believed only
// as far as snappy can reach: a copy makes at most 64 bytes of 2.
func (d *Decoder) snappyBlock(src []byte) ([]byte, error) {
	n, err := snappy.DecodedLen(src)
	if err != nil {
		return nil, err
	}
	have := len(d.buf)
	if int64(have)+int64(n) > d.max {
		return nil, errTooLarge
	}
	if int64(n) > int64(len(src))*32 {
		return nil, snappy.ErrCorrupt
	}
	if cap(d.buf)-have < n {
		size := max(have+n, int(min(int64(have)*2, d.max)))
		d.buf = append(make([]byte, 0, size), d.buf...)
	}
	out, err := snappy.DecodeStrict(d.buf[have:have:have+n], src)
	if err != nil {
		return nil, err
	}
	d.buf = d.buf[:have+len(out)]
	return d.buf, nil
}
