package local

import (
	"bytes"
	"testing"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys/mem"
)

func TestLogAppendRollReadReopen(t *testing.T) {
	n := newNode(t, mem.New())
	l := n.open()
	var want []byte
	for i := range 30 {
		want = append(want, add(t, l, 1, 1+i%3)...)
		if i%10 == 9 {
			must(t, l.Roll())
		}
	}
	must(t, l.Sync())
	if l.Flushed() != l.LogEnd() {
		t.Fatalf("flushed %d, end %d", l.Flushed(), l.LogEnd())
	}
	if got := content(t, l); !bytes.Equal(got, want) {
		t.Fatalf("read %d bytes, wrote %d", len(got), len(want))
	}
	end := l.LogEnd()
	n.close()

	l = n.open()
	if !n.rec.Clean || l.LogEnd() != end || !bytes.Equal(content(t, l), want) {
		t.Fatalf("after a clean stop: %+v, end %d", n.rec, l.LogEnd())
	}
	want = append(want, add(t, l, 2, 2)...)
	must(t, l.Sync())

	l = n.losePower()
	if n.rec.Scanned != 1 || !bytes.Equal(content(t, l), want) {
		t.Fatalf("after a power loss: %+v, end %d", n.rec, l.LogEnd())
	}
	if got := l.Lineage().String(); got != "{1:0, 2:60}" {
		t.Fatalf("lineage %s", got)
	}
	if segs := l.Segments(); len(segs) != 4 || segs[3].Base != tiers.Offset(60) || !segs[3].Active {
		t.Fatalf("segments %+v", segs)
	}
	n.close()
}
