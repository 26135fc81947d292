package kafka

import (
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The keys that the server treats apart from the others.
const (
	keyProduce     int16 = 0
	keyFetch       int16 = 1
	keyAPIVersions int16 = 18
)

// decode turns a frame into a request. ApiVersions of a version that nobody
// knows stays undecoded, for its answer does not depend on it (KIP-511).
func (s *Server) decode(f frame) (kmsg.Request, error) {
	req := kmsg.RequestForKey(f.key)
	if !s.serves(f.key, f.version) {
		return req, nil
	}
	req.SetVersion(f.version)
	body, ok := skipClientID(f.body)
	if ok && req.IsFlexible() {
		body, ok = skipTags(body)
	}
	if !ok {
		return nil, badFrame("header", "%s request with a broken header", apiName(f.key))
	}
	if err := req.ReadFrom(body); err != nil {
		return nil, badFrame("request", "%s version %d request that does not decode: %v", apiName(f.key), f.version, err)
	}
	return req, nil
}

// skipClientID passes a nullable string with a length of two bytes, which the
// client id is in the headers of flexible versions, too.
func skipClientID(b []byte) ([]byte, bool) {
	if len(b) < 2 {
		return nil, false
	}
	n := int(int16(binary.BigEndian.Uint16(b)))
	b = b[2:]
	if n < -1 || n > len(b) {
		return nil, false
	}
	return b[max(n, 0):], true
}

// skipTags passes a section of tagged fields.
func skipTags(b []byte) ([]byte, bool) {
	n, b, ok := uvarint(b)
	for ; ok && n > 0; n-- {
		var size uint32
		if _, b, ok = uvarint(b); !ok {
			break
		}
		if size, b, ok = uvarint(b); !ok || uint64(size) > uint64(len(b)) {
			return nil, false
		}
		b = b[size:]
	}
	return b, ok
}

// uvarint reads a number of at most 32 bits in at most 5 bytes.
func uvarint(b []byte) (uint32, []byte, bool) {
	v, n := binary.Uvarint(b[:min(len(b), binary.MaxVarintLen32)])
	if n <= 0 || v > 1<<32-1 {
		return 0, nil, false
	}
	return uint32(v), b[n:], true
}

// appendHeader begins a response: room for its size, the correlation id and, in
// flexible versions, no tagged fields. The response to ApiVersions never has
// those, since a client must be able to read it before it knows versions.
func appendHeader(dst []byte, corr int32, key int16, flexible bool) []byte {
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, uint32(corr))
	if flexible && key != keyAPIVersions {
		dst = append(dst, 0)
	}
	return dst
}
