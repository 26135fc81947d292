package kafka

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/strandline-io/strandline/tiers"
)

// Codes that have no kind, because only the wire knows of them.
const (
	codeNone                 int16 = 0
	codeUnknown              int16 = -1
	codeLeaderNotAvailable   int16 = 5
	codeNotLeader            int16 = 6
	codeTimedOut             int16 = 7
	codeMetadataTooLarge     int16 = 12
	codeInvalidTopic         int16 = 17
	codeInvalidRequiredAcks  int16 = 21
	codeIllegalGeneration    int16 = 22
	codeInvalidGroupID       int16 = 24
	codeUnknownMemberID      int16 = 25
	codeClusterAuthorization int16 = 31
	codeUnsupportedVersion   int16 = 35
	codeInvalidAssignment    int16 = 39
	codeInvalidRequest       int16 = 42
	codeUnsupportedFormat    int16 = 43
	codeTransactionalID      int16 = 53
	codeSessionNotFound      int16 = 70
	codeSessionEpoch         int16 = 71
	codeFencedEpoch          int16 = 74
	codeInvalidRecord        int16 = 87
	codeUnknownTopicID       int16 = 100
	codeInconsistentTopicID  int16 = 103
	codeSessionTopicID       int16 = 106
	codeMismatchedEndpoint   int16 = 114
	codeUnsupportedEndpoint  int16 = 115
)

// codeOfKind is the one table from kinds to codes of the protocol. A store that
// cannot be reached is KAFKA_STORAGE_ERROR (56): of the codes that clients retry
// a fetch on, the one that says where to look. A log that was replaced or is
// stopping sends clients to the metadata, as a change of leaders does.
func codeOfKind(k tiers.Kind) (code int16, ok bool) {
	if int(k) >= len(kindCodes()) {
		return codeUnknown, false
	}
	code = kindCodes()[k]
	return code, code != 0
}

func kindCodes() []int16 {
	return []int16{
		tiers.Other:                    codeUnknown,
		tiers.OffsetOutOfRange:         1,
		tiers.CorruptMessage:           2,
		tiers.UnknownTopicOrPartition:  3,
		tiers.NotLeader:                codeNotLeader,
		tiers.TimedOut:                 codeTimedOut,
		tiers.MessageTooLarge:          10,
		tiers.RecordListTooLarge:       18,
		tiers.InvalidTopic:             codeInvalidTopic,
		tiers.InvalidPartitions:        37,
		tiers.InvalidReplicationFactor: 38,
		tiers.InvalidReplicaAssignment: codeInvalidAssignment,
		tiers.InvalidConfig:            40,
		tiers.InvalidRequest:           codeInvalidRequest,
		tiers.InvalidTimestamp:         32,
		tiers.InvalidRecord:            codeInvalidRecord,
		tiers.UnsupportedFormat:        codeUnsupportedFormat,
		tiers.UnsupportedCompression:   76,
		tiers.UnsupportedVersion:       codeUnsupportedVersion,
		tiers.OutOfOrderSequence:       45,
		tiers.DuplicateSequence:        46,
		tiers.InvalidProducerEpoch:     47,
		tiers.UnknownProducer:          59,
		tiers.TopicExists:              36,
		tiers.FencedLeaderEpoch:        codeFencedEpoch,
		tiers.UnknownLeaderEpoch:       75,
		tiers.UnknownTopicID:           codeUnknownTopicID,
		tiers.InconsistentTopicID:      codeInconsistentTopicID,
		tiers.OffsetNotAvailable:       78,
		tiers.PolicyViolation:          44,
		tiers.StorageFailed:            56,
		tiers.RemoteUnavailable:        56,
		tiers.StaleFence:               codeNotLeader,
		tiers.Closed:                   codeNotLeader,
		tiers.Conflict:                 95,
		tiers.OffsetMetadataTooLarge:   codeMetadataTooLarge,
	}
}

// codeOf is the code for an error.
func codeOf(err error) int16 {
	if err == nil {
		return codeNone
	}
	k := tiers.KindOf(err)
	if k == tiers.Other && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)) {
		k = tiers.TimedOut
	}
	code, _ := codeOfKind(k)
	return code
}

// codeName names a code for metrics.
func codeName(code int16) string {
	var e *kerr.Error
	if err := kerr.ErrorForCode(code); errors.As(err, &e) {
		return e.Message
	}
	return "NONE"
}

// detail is the message that goes with an error; nil if there is none.
func detail(err error) *string {
	if err == nil {
		return nil
	}
	s := err.Error()
	return &s
}
