package mem

import "slices"

const (
	pageSize   = 4096
	sectorSize = 512 // what a disk writes in one step
)

type page [pageSize]byte

// pageRef is a page and who may write to it: the content whose token own is.
type pageRef struct {
	p   *page // nil is all zeros
	own *token
}

// token is compared by address; it must not be of size zero.
type token struct{ _ byte }

// content is the bytes of a file. It is shared by being frozen: then it never
// changes again, and whoever wants to write thaws a copy that shares its pages
// until it writes to them. Bytes of the last page beyond size are zero.
type content struct {
	pages  []pageRef
	size   int64
	own    *token
	frozen bool
}

func newContent() *content { return &content{own: new(token)} }

// freeze makes c immutable. It writes the flag only once, because a frozen
// content may belong to several file systems with a lock each.
func (c *content) freeze() *content {
	if !c.frozen {
		c.frozen = true
	}
	return c
}

func (c *content) thaw() *content {
	if !c.frozen {
		return c
	}
	return &content{pages: slices.Clone(c.pages), size: c.size, own: new(token)}
}

// at returns page i for reading, nil if it is all zeros.
func (c *content) at(i int) *page {
	if i >= len(c.pages) {
		return nil
	}
	return c.pages[i].p
}

// writable returns page i for writing.
func (c *content) writable(i int) *page {
	for len(c.pages) <= i {
		c.pages = append(c.pages, pageRef{})
	}
	r := &c.pages[i]
	if r.p == nil || r.own != c.own {
		p := new(page)
		if r.p != nil {
			*p = *r.p
		}
		*r = pageRef{p, c.own}
	}
	return r.p
}

func (c *content) readAt(b []byte, off int64) int {
	if off >= c.size {
		return 0
	}
	b = b[:min(int64(len(b)), c.size-off)]
	for n := 0; n < len(b); {
		i, in := int((off+int64(n))/pageSize), int((off+int64(n))%pageSize)
		part := b[n:min(len(b), n+pageSize-in)]
		if p := c.at(i); p != nil {
			copy(part, p[in:])
		} else {
			clear(part)
		}
		n += len(part)
	}
	return len(b)
}

func (c *content) writeAt(b []byte, off int64) {
	c.size = max(c.size, off+int64(len(b)))
	for len(b) > 0 {
		n := copy(c.writable(int(off / pageSize))[off%pageSize:], b)
		b, off = b[n:], off+int64(n)
	}
}

func (c *content) truncate(size int64) {
	if size < c.size {
		keep := int((size + pageSize - 1) / pageSize)
		c.pages = c.pages[:min(keep, len(c.pages))]
		if in := size % pageSize; in != 0 && c.at(keep-1) != nil {
			clear(c.writable(keep - 1)[in:])
		}
	}
	c.size = size
}
