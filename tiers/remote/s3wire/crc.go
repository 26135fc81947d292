package s3wire

import "hash/crc32"

// combineCRC returns the CRC-32C of a||b from those of a and b and the length of
// b. Appending n zero bytes to a message is a linear map over GF(2) on its CRC;
// the map for n bytes is made by squaring the one for a single zero bit
// (zlib's crc32_combine).
func combineCRC(a, b uint32, lenB int64) uint32 {
	if lenB <= 0 {
		return a
	}
	var odd, even gf2
	odd[0] = crc32.Castagnoli // one zero bit
	for i := 1; i < len(odd); i++ {
		odd[i] = 1 << (i - 1)
	}
	even.squareOf(&odd) // two bits
	odd.squareOf(&even) // four bits
	for from, to := &odd, &even; lenB > 0; from, to = to, from {
		to.squareOf(from) // first round: one byte
		if lenB&1 != 0 {
			a = to.times(a)
		}
		lenB >>= 1
	}
	return a ^ b
}

// gf2 is a 32x32 bit matrix by columns.
type gf2 [32]uint32

func (m *gf2) times(v uint32) uint32 {
	var sum uint32
	for i := 0; v != 0; i, v = i+1, v>>1 {
		if v&1 != 0 {
			sum ^= m[i]
		}
	}
	return sum
}

func (m *gf2) squareOf(n *gf2) {
	for i := range m {
		m[i] = n.times(n[i])
	}
}
