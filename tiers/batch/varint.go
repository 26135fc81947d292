package batch

import "encoding/binary"

// cursor reads the fields of records. After the first field that is not there or
// not legal, bad is set and every later read returns nothing; nothing is
// allocated by a length that was read.
type cursor struct {
	b   []byte
	bad bool
}

// varint reads a zigzag integer of 32 bits: 5 bytes at most.
func (c *cursor) varint() int32 {
	if len(c.b) > 0 && c.b[0] < 0x80 {
		u := uint32(c.b[0])
		c.b = c.b[1:]
		return int32(u>>1) ^ -int32(u&1)
	}
	u, n := binary.Uvarint(c.b[:min(len(c.b), 5)])
	if n <= 0 || u > 0xffffffff {
		return int32(c.fail())
	}
	c.b = c.b[n:]
	return int32(uint32(u)>>1) ^ -int32(u&1)
}

// varlong reads a zigzag integer of 64 bits: 10 bytes at most.
func (c *cursor) varlong() int64 {
	u, n := binary.Uvarint(c.b)
	if n <= 0 {
		return c.fail()
	}
	c.b = c.b[n:]
	return int64(u>>1) ^ -int64(u&1)
}

// bytes reads n bytes; they alias the source.
func (c *cursor) bytes(n int32) []byte {
	if n < 0 || int64(n) > int64(len(c.b)) {
		c.fail()
		return nil
	}
	v := c.b[:n:n]
	c.b = c.b[n:]
	return v
}

// nullable reads a length and that many bytes; -1 is null, any other negative
// length is illegal.
func (c *cursor) nullable() []byte {
	n := c.varint()
	if n == -1 {
		return nil
	}
	return c.bytes(n)
}

func (c *cursor) fail() int64 {
	c.bad, c.b = true, nil
	return 0
}
