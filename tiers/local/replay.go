package local

import (
	"cmp"
	"errors"
	"path"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/batch"
	"github.com/strandline-io/strandline/tiers/fsys"
)

// folder is where a log lives: all that is needed to make producer state of its
// files. It never changes, so readers may use it.
type folder struct {
	fs    fsys.FS
	dir   string // of the history
	place string
	now   func() time.Time
	out   hclog.Logger
}

// snapshotPath is the file of the producer snapshot at o.
func (f folder) snapshotPath(o tiers.Offset) string {
	return path.Join(f.dir, fileName(o, snapshotSuffix))
}

// replay applies the batches of [from, to) in segs to p. Damaged bytes end the
// replay of their segment: what they held is not known.
func (p *Producers) replay(segs []*segment, from, to tiers.Offset, f folder) error {
	d, now := batch.NewDecoder(0), f.now()
	for i, s := range segs {
		if s.base >= to || i+1 < len(segs) && segs[i+1].base <= from {
			continue
		}
		err := s.eachBatch(max(from, s.base), to, func(w *walker, h batch.Header, pos int64) (bool, error) {
			if h.ProducerID < 0 {
				return true, nil
			}
			var m marker
			if h.Control() {
				b, err := w.view(pos, h.Size())
				if err != nil {
					return false, err
				}
				if m, err = readMarker(d, b); err != nil {
					return false, damage{pos, err.Error()}
				}
			}
			p.apply(h, m, now)
			return true, nil
		})
		if err != nil && !errors.As(err, new(damage)) {
			return err
		}
		if err != nil {
			f.out.Warn("producer state stops at damaged bytes", "file", s.log.path(), "err", err)
		}
	}
	return nil
}

// producersAt makes the producer state at offset at: the newest usable snapshot
// at or below it, and the batches from there on. segs hold what lies below at.
func (f folder) producersAt(segs []*segment, at tiers.Offset) (*Producers, error) {
	offsets, err := f.listSnapshots()
	if err != nil {
		return nil, err
	}
	p := newProducers(f.place)
	from := tiers.Offset(0)
	for _, o := range offsets {
		if o > at || o < at && (len(segs) == 0 || o < segs[0].base) { // nothing could be replayed in between
			continue
		}
		b, err := fsys.ReadFile(f.fs, f.snapshotPath(o))
		if err == nil {
			err = p.loadSnapshot(b, f.now())
		}
		if err == nil {
			from = o
			break
		}
		f.out.Warn("a producer snapshot cannot be used", "file", f.snapshotPath(o), "err", err)
	}
	return p, p.replay(segs, from, at, f)
}

// listSnapshots returns the offsets of the producer snapshots, the newest first.
func (f folder) listSnapshots() ([]tiers.Offset, error) {
	list, err := f.fs.ReadDir(f.dir)
	if err != nil {
		return nil, err
	}
	var out []tiers.Offset
	for _, e := range list {
		if o, suffix, ok := parseName(e.Name()); ok && suffix == snapshotSuffix {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b tiers.Offset) int { return cmp.Compare(b, a) })
	return out, nil
}

// reloadProducers makes the state fit a log that was cut.
func (l *Log) reloadProducers(end tiers.Offset) error {
	if err := l.removeSnapshots(func(o tiers.Offset) bool { return o > end }); err != nil {
		return err
	}
	p, err := l.producersAt(l.segs, end)
	if err != nil {
		return err
	}
	*l.prods = *p // the owner may hold the pointer
	return nil
}
