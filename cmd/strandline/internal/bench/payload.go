package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
)

// The head of a payload, big endian: magic, run, producer, number, CRC-32C of
// everything else.
const (
	payloadMagic = "SLBN"
	payloadHead  = 4 + 8 + 4 + 8 + 4
	payloadCRC   = payloadHead - 4
)

// MinRecordSize is the size of the smallest record that carries a number.
const MinRecordSize = payloadHead

// Fills of a payload behind its head.
const (
	FillRandom = "random" // does not compress
	FillText   = "text"   // compresses about as JSON lines do
)

// stamp says which record a payload is of.
type stamp struct {
	run      uint64
	producer uint32
	number   uint64
}

var errNoStamp = errors.New("it was not written by strandline bench")

// castagnoli is made once per ledger and producer; the table behind it is shared.
func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// seal writes s and the checksum into the head of a payload.
func seal(b []byte, s stamp, table *crc32.Table) {
	be := binary.BigEndian
	copy(b, payloadMagic)
	be.PutUint64(b[4:], s.run)
	be.PutUint32(b[12:], s.producer)
	be.PutUint64(b[16:], s.number)
	be.PutUint32(b[payloadCRC:], sum(b, table))
}

func sum(b []byte, table *crc32.Table) uint32 {
	return crc32.Update(crc32.Checksum(b[:payloadCRC], table), table, b[payloadHead:])
}

// open reads the head of a payload. errNoStamp is a record of somebody else.
func open(b []byte, table *crc32.Table) (stamp, error) {
	if len(b) < payloadHead || string(b[:4]) != payloadMagic {
		return stamp{}, errNoStamp
	}
	be := binary.BigEndian
	if want, got := be.Uint32(b[payloadCRC:]), sum(b, table); want != got {
		return stamp{}, fmt.Errorf("its checksum is %08x and should be %08x", got, want)
	}
	return stamp{run: be.Uint64(b[4:]), producer: be.Uint32(b[12:]), number: be.Uint64(b[16:])}, nil
}

// fill makes the content of a payload. The same seed makes the same.
func fill(b []byte, how string, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // content to send, not a secret
	if how == FillText {
		words := []string{`{"user":"`, `","state":"`, `ok`, `degraded`, `","load":`, `,"temperature":`, `,"path":"/var/lib/`, `"}`}
		for n := 0; n < len(b); {
			n += copy(b[n:], words[random.IntN(len(words))])
			if n < len(b) {
				n += copy(b[n:], fmt.Sprint(random.IntN(10_000)))
			}
		}
		return
	}
	var word [8]byte
	for n := 0; n < len(b); {
		binary.LittleEndian.PutUint64(word[:], random.Uint64())
		n += copy(b[n:], word[:])
	}
}
