package remote

import (
	"fmt"
	"strings"

	"github.com/strandline-io/strandline/tiers"
)

// TopicsPrefix begins the keys of all segments.
const TopicsPrefix = topicsPrefix

// ParseTopicPrefix reads what TopicPrefix wrote, as a listing by "/" yields it.
func ParseTopicPrefix(key string) (tiers.TopicID, error) {
	name, _ := strings.CutPrefix(key, topicsPrefix)
	name, ok := strings.CutSuffix(name, "/")
	if !ok {
		return tiers.TopicID{}, fmt.Errorf("%w: %q is not the folder of a topic", ErrBadKey, key)
	}
	id, err := tiers.ParseTopicID(name)
	if err != nil || id.Hex() != name {
		return tiers.TopicID{}, fmt.Errorf("%w: %q is not the folder of a topic", ErrBadKey, key)
	}
	return id, nil
}

// Segment returns the identity that a key tells of its segment: no facts about
// its content.
func (n SegmentName) Segment() tiers.RemoteSegment {
	return tiers.RemoteSegment{ID: n.ID, Partition: n.Partition, Gen: n.Gen, Base: n.Base, CopierEpoch: n.Epoch}
}
