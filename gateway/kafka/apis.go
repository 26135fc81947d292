package kafka

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// api is one API key that the server answers, at the versions that it really
// serves (T5).
type api struct {
	key      int16
	min, max int16
	serve    func(*Server, *call) answer
}

// call is a request on its way.
type call struct {
	ctx     context.Context // ends when the server gives up on requests in flight
	gone    context.Context // ends when the peer hung up, too
	conn    *conn
	version int16
	req     kmsg.Request
	arrived time.Time
}

// answer is what a call leads to: a response of kmsg, a fetch's own form of one,
// or none of both, for a Produce that wants no answer. hangUp closes the
// connection instead, the only way to tell such a producer that it failed.
type answer struct {
	resp   kmsg.Response
	fetch  *fetchAnswer
	hangUp bool
	code   int16 // the first error in it, for the metrics
}

// apis is the table of everything that is advertised.
func apis() []api {
	return []api{
		{keyProduce, 0, 11, (*Server).produce}, // min 0 is a lie with a purpose: T1 in 00_produce.go
		{keyFetch, 4, 17, (*Server).fetch},
		{2, 0, 11, (*Server).listOffsets},
		{3, 0, 12, (*Server).metadata},
		{8, 0, 9, (*Server).offsetCommit},
		{9, 0, 9, (*Server).offsetFetch},
		{10, 0, 6, (*Server).findCoordinator},
		{keyAPIVersions, 0, 4, (*Server).apiVersions},
		{19, 0, 7, (*Server).createTopics},
		{20, 0, 6, (*Server).deleteTopics},
		{21, 0, 2, (*Server).deleteRecords},
		{22, 0, 4, (*Server).initProducerID},
		{23, 2, 4, (*Server).offsetForLeaderEpoch},
		{32, 0, 4, (*Server).describeConfigs},
		{33, 0, 2, (*Server).alterConfigs},
		{37, 0, 3, (*Server).createPartitions},
		{44, 0, 1, (*Server).incrementalAlterConfigs},
		{60, 0, 1, (*Server).describeCluster},
	}
}

// serves reports whether key is served at version.
func (s *Server) serves(key, version int16) bool {
	a, ok := s.apis[key]
	return ok && version >= a.min && version <= a.max
}

// worst is the first error of two.
func worst(a, b int16) int16 {
	if a != codeNone {
		return a
	}
	return b
}
