package admin

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/strandline-io/strandline/gateway/admin/client"
	"github.com/strandline-io/strandline/tiers"
)

// statuses is the one table from kinds to HTTP statuses. 503 is for what a retry
// may heal.
func statuses() map[tiers.Kind]int {
	return map[tiers.Kind]int{
		tiers.Other:                    http.StatusInternalServerError,
		tiers.OffsetOutOfRange:         http.StatusBadRequest,
		tiers.CorruptMessage:           http.StatusInternalServerError,
		tiers.UnknownTopicOrPartition:  http.StatusNotFound,
		tiers.NotLeader:                http.StatusServiceUnavailable,
		tiers.TimedOut:                 http.StatusGatewayTimeout,
		tiers.MessageTooLarge:          http.StatusRequestEntityTooLarge,
		tiers.RecordListTooLarge:       http.StatusRequestEntityTooLarge,
		tiers.InvalidTopic:             http.StatusBadRequest,
		tiers.InvalidPartitions:        http.StatusBadRequest,
		tiers.InvalidReplicationFactor: http.StatusBadRequest,
		tiers.InvalidReplicaAssignment: http.StatusBadRequest,
		tiers.InvalidConfig:            http.StatusBadRequest,
		tiers.InvalidRequest:           http.StatusBadRequest,
		tiers.InvalidTimestamp:         http.StatusBadRequest,
		tiers.InvalidRecord:            http.StatusBadRequest,
		tiers.UnsupportedFormat:        http.StatusBadRequest,
		tiers.UnsupportedCompression:   http.StatusBadRequest,
		tiers.UnsupportedVersion:       http.StatusBadRequest,
		tiers.OutOfOrderSequence:       http.StatusConflict,
		tiers.DuplicateSequence:        http.StatusConflict,
		tiers.InvalidProducerEpoch:     http.StatusConflict,
		tiers.UnknownProducer:          http.StatusConflict,
		tiers.TopicExists:              http.StatusConflict,
		tiers.FencedLeaderEpoch:        http.StatusConflict,
		tiers.UnknownLeaderEpoch:       http.StatusConflict,
		tiers.UnknownTopicID:           http.StatusNotFound,
		tiers.InconsistentTopicID:      http.StatusConflict,
		tiers.OffsetNotAvailable:       http.StatusServiceUnavailable,
		tiers.PolicyViolation:          http.StatusForbidden,
		tiers.StorageFailed:            http.StatusServiceUnavailable,
		tiers.RemoteUnavailable:        http.StatusServiceUnavailable,
		tiers.StaleFence:               http.StatusServiceUnavailable,
		tiers.Closed:                   http.StatusServiceUnavailable,
		tiers.Conflict:                 http.StatusConflict,
		tiers.OffsetMetadataTooLarge:   http.StatusRequestEntityTooLarge,
	}
}

// problem is an error that only this interface knows.
type problem struct {
	status        int
	title, detail string
}

func (p problem) Error() string { return p.detail }

// fail answers with the error of a handler.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	if p := (problem{}); errors.As(err, &p) {
		writeProblem(w, p.status, p.title, p.detail)
		return
	}
	kind := tiers.KindOf(err)
	status, ok := statuses()[kind]
	if !ok {
		status = http.StatusInternalServerError
	}
	if status >= http.StatusInternalServerError {
		s.o.Log.Warn("a request failed", "method", r.Method, "path", r.URL.Path, "err", err)
	}
	writeProblem(w, status, kind.String(), err.Error())
}

func writeProblem(w http.ResponseWriter, status int, kind, detail string) {
	raw, err := json.Marshal(client.Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail, Kind: kind})
	if err != nil { // strings and a number: it cannot fail
		raw = []byte("{}")
	}
	w.Header().Set("Content-Type", "application/problem+json")
	write(w, status, raw)
}
