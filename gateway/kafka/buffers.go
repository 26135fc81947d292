package kafka

import (
	"math/bits"
	"sync"
)

// The size classes of pooled buffers: powers of two. Larger ones are left to the
// garbage collector, smaller ones are not worth it.
const (
	minClass = 12 // 4 KiB
	maxClass = 24 // 16 MiB
)

// buffers is a pool of byte slices by size class.
type buffers struct {
	classes [maxClass - minClass + 1]sync.Pool
}

// buffer is a pooled slice. The zero value is none.
type buffer struct{ b *[]byte }

// get returns a buffer of length n with arbitrary content.
func (p *buffers) get(n int) buffer {
	c := classOf(n)
	if c > maxClass {
		b := make([]byte, n)
		return buffer{&b}
	}
	if b, ok := p.classes[c-minClass].Get().(*[]byte); ok {
		*b = (*b)[:n]
		return buffer{b}
	}
	b := make([]byte, n, 1<<c)
	return buffer{&b}
}

// put gives a buffer back. Nobody may use it afterwards.
func (p *buffers) put(b buffer) {
	if b.b == nil {
		return
	}
	if c := classOf(cap(*b.b)); c <= maxClass && cap(*b.b) == 1<<c {
		p.classes[c-minClass].Put(b.b)
	}
}

func (b buffer) bytes() []byte {
	if b.b == nil {
		return nil
	}
	return *b.b
}

func classOf(n int) int {
	if n <= 1<<minClass {
		return minClass
	}
	return bits.Len(uint(n - 1))
}
