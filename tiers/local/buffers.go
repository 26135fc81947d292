package local

import "sync"

// keptBuffer is the largest buffer that is kept for the next user: a group commit
// with room for one batch. An exceptional batch must not pin more.
const keptBuffer = 8 << 20

// Buffers lends byte slices of any length. The zero value is ready. It is safe
// for concurrent use.
type Buffers struct{ pool sync.Pool }

// Get lends a buffer; what it holds is of no meaning.
func (b *Buffers) Get() *[]byte {
	if buf, ok := b.pool.Get().(*[]byte); ok {
		return buf
	}
	return new([]byte)
}

// Put gives a buffer back. The caller must not use it, or its bytes, any more.
func (b *Buffers) Put(buf *[]byte) {
	if cap(*buf) <= keptBuffer {
		b.pool.Put(buf)
	}
}
