package kafka

import (
	"cmp"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ApiVersions: v0-4, and any other version with a v0 body, UNSUPPORTED_VERSION
// (35) and the versions of this API, so that the client can ask again (KIP-511).
//
//   - v3: name and version of the client's software, INVALID_REQUEST if they are
//     not; flexible, but for the header of the response
//   - v4: features may be supported from version 0 (KIP-1022); there are none
//
// Only what is served is listed (T5).
func (s *Server) apiVersions(c *call) answer {
	req, _ := c.req.(*kmsg.ApiVersionsRequest)
	resp := kmsg.NewPtrApiVersionsResponse()
	self := s.apis[keyAPIVersions]
	if !s.serves(keyAPIVersions, c.version) {
		resp.Version, resp.ErrorCode = 0, codeUnsupportedVersion
		resp.ApiKeys = []kmsg.ApiVersionsResponseApiKey{versionsOf(self)}
		return answer{resp: resp, code: codeUnsupportedVersion}
	}
	resp.Version = req.Version
	if req.Version >= 3 && (!softwareName(req.ClientSoftwareName) || !softwareName(req.ClientSoftwareVersion)) {
		resp.ErrorCode = codeInvalidRequest
		resp.ApiKeys = []kmsg.ApiVersionsResponseApiKey{}
		return answer{resp: resp, code: codeInvalidRequest}
	}
	resp.ApiKeys = make([]kmsg.ApiVersionsResponseApiKey, 0, len(s.apis))
	for _, a := range s.apis {
		resp.ApiKeys = append(resp.ApiKeys, versionsOf(a))
	}
	slices.SortFunc(resp.ApiKeys, func(a, b kmsg.ApiVersionsResponseApiKey) int { return cmp.Compare(a.ApiKey, b.ApiKey) })
	return answer{resp: resp}
}

func versionsOf(a api) kmsg.ApiVersionsResponseApiKey {
	k := kmsg.NewApiVersionsResponseApiKey()
	k.ApiKey, k.MinVersion, k.MaxVersion = a.key, a.min, a.max
	return k
}

// softwareName reports whether s is letters, digits, '-' and '.', without the
// latter two at its ends (KIP-511).
func softwareName(s string) bool {
	for i := range len(s) {
		switch b := s[i]; {
		case b >= 'a' && b <= 'z', b >= 'A' && b <= 'Z', b >= '0' && b <= '9':
		case (b == '-' || b == '.') && i > 0 && i < len(s)-1:
		default:
			return false
		}
	}
	return s != ""
}
