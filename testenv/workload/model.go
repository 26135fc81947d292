package workload

import (
	"fmt"
	"time"
)

// record is one offset of the model.
type record struct {
	value string
	ts    int64     // milliseconds since 1970
	at    time.Time // of its append
	size  int64     // no batch of it is larger
}

// partition is what must be true of one partition.
type partition struct {
	records []record            // by offset: acknowledged, or seen by a reader
	unsure  map[string]record   // sent, and nobody knows what became of them
	spent   map[string]int64    // every value that is or was in the log, with its offset
	trimmed int64               // the highest answer of a DeleteRecords
	start   int64               // the highest log start that was seen
	may     int64               // the log start may be as high as this
	lost    map[string]struct{} // gone with a disk before they were copied
}

func newPartition() *partition {
	return &partition{unsure: map[string]record{}, spent: map[string]int64{}, lost: map[string]struct{}{}}
}

func (p *partition) end() int64 { return int64(len(p.records)) }

// settle puts a record at an offset: it was acknowledged there, or read there.
func (p *partition) settle(offset int64, r record) error {
	if offset < p.end() {
		if have := p.records[offset]; have.value != r.value {
			return fmt.Errorf("offset %d named %q and now names %q", offset, have.value, r.value)
		}
		return nil
	}
	if offset > p.end() {
		return fmt.Errorf("offset %d comes after %d: there is a hole", offset, p.end())
	}
	if at, twice := p.spent[r.value]; twice {
		return fmt.Errorf("%q is at offset %d and at %d", r.value, at, offset)
	}
	if _, gone := p.lost[r.value]; gone {
		return fmt.Errorf("%q was gone with the disk and is back at offset %d", r.value, offset)
	}
	delete(p.unsure, r.value)
	p.records, p.spent[r.value] = append(p.records, r), offset
	return nil
}

// seen compares a record that a reader got.
func (p *partition) seen(offset int64, value string, ts int64) error {
	if offset < p.end() {
		want := p.records[offset]
		if want.value != value || want.ts != ts {
			return fmt.Errorf("offset %d holds %q at %d, want %q at %d", offset, value, ts, want.value, want.ts)
		}
		return nil
	}
	r, sent := p.unsure[value]
	if !sent {
		return fmt.Errorf("offset %d holds %q, which nobody sent there", offset, value)
	}
	if r.ts != ts {
		return fmt.Errorf("offset %d has time %d, sent was %d", offset, ts, r.ts)
	}
	return p.settle(offset, r)
}

// cut is what a lost disk does to a log that was rebuilt up to end.
func (p *partition) cut(end int64) {
	for p.end() > end {
		last := p.records[p.end()-1]
		p.records = p.records[:p.end()-1]
		delete(p.spent, last.value)
		p.lost[last.value] = struct{}{}
	}
	for p.end() < end { // trimmed beyond what was copied
		p.records = append(p.records, record{})
	}
	p.forget()
}

// forget gives up what was sent and is not in the log.
func (p *partition) forget() {
	for v := range p.unsure {
		p.lost[v] = struct{}{}
	}
	clear(p.unsure)
}

// limits are the settings that let the log start move by itself. Negative is
// none.
type limits struct {
	bytes int64
	age   time.Duration
}

// allow moves up how far retention may have gone under these settings by now.
func (p *partition) allow(l limits, now time.Time) {
	if l.bytes >= 0 {
		var rest int64
		start := p.end()
		for start > 0 && rest < l.bytes {
			start--
			rest += p.records[start].size
		}
		if rest >= l.bytes {
			p.may = max(p.may, start)
		}
	}
	if l.age >= 0 {
		p.may = max(p.may, p.expired(l.age, now))
	}
}

// expired is the end of the run of records that are older than age. Where a segment
// has one from the future, all of it may count by the time of its last append.
func (p *partition) expired(age time.Duration, now time.Time) int64 {
	for i, r := range p.records {
		t := time.UnixMilli(r.ts)
		if r.at.Before(t) {
			t = r.at
		}
		if now.Sub(t) < age {
			return int64(i)
		}
	}
	return p.end()
}

// firstAt is the first offset in [start, end) with a timestamp of at least ts, -1
// if there is none.
func (p *partition) firstAt(start, ts int64) int64 {
	for o := start; o < p.end(); o++ {
		if p.records[o].ts >= ts {
			return o
		}
	}
	return -1
}
