package local

import (
	"math"

	"github.com/strandline-io/strandline/tiers"
)

// A log that broke and is opened again by the same process. After a fsync that
// failed the kernel calls the pages clean: reading the file shows bytes that no
// disk has, and another fsync succeeds without writing them. So nothing above the
// recovery point is believed to be on disk. What was acknowledged all the same
// (other ack modes than fsync) is written again, byte for byte, and then synced;
// what was not is cut, as if the process had never tried.

// doubt is what recovery knows of a log that broke in this process. Its zero
// value is none.
type doubt struct {
	on  bool
	cut tiers.Offset // nothing at or above it was acknowledged
}

func (p *opening) doubt() doubt {
	if !p.saved.suspect {
		return doubt{cut: math.MaxInt64}
	}
	// What was synced is kept even if it was not acknowledged: it may be below a
	// checkpoint that was written since.
	return doubt{on: true, cut: max(p.saved.high, p.saved.point)}
}

// rewriteStep is how much is read and written at once, in bytes.
const rewriteStep = 1 << 20

// rewrite writes the bytes of a segment from a position on again. They are the
// same bytes, so a crash in the middle changes nothing.
func (s *segment) rewrite(from, to int64) error {
	h, err := s.log.acquire()
	if err != nil {
		return err
	}
	defer h.release()
	buf := make([]byte, min(rewriteStep, max(0, to-from)))
	for at := from; at < to; at += int64(len(buf)) {
		b := buf[:min(int64(len(buf)), to-at)]
		if _, err := h.ReadAt(b, at); err != nil {
			return err
		}
		if _, err := h.WriteAt(b, at); err != nil {
			return err
		}
	}
	return nil
}
