package broker

import (
	"context"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/partition"
)

// TopicLag is how far the copies of a topic are behind.
type TopicLag struct {
	Topic string
	partition.Lag
}

// Lags lists the topics with closed segments that are not in the bucket.
func (b *Broker) Lags() []TopicLag {
	var out []TopicLag
	for _, e := range b.Catalog().entries {
		sum := TopicLag{Topic: e.topic.Name}
		for _, s := range e.slots {
			if owner := s.state.Load().owner; owner != nil {
				sum.add(owner.Lag())
			}
		}
		if sum.Segments > 0 {
			out = append(out, sum)
		}
	}
	return out
}

func (t *TopicLag) add(l partition.Lag) {
	if l.Segments == 0 {
		return
	}
	if t.Segments == 0 || l.Oldest.Before(t.Oldest) {
		t.Oldest = l.Oldest
	}
	t.Bytes += l.Bytes
	t.Segments += l.Segments
}

// Stored is what the rows say that the bucket holds, in bytes.
type Stored struct {
	Topics  map[tiers.TopicID]int64 // those of the catalog
	Deleted int64                   // of topics that are gone: it is about to go
}

// Stored sums up the rows of remote segments, both objects of each, whether they
// are finished or on their way out. Error kinds: those of the control plane.
func (b *Broker) Stored(ctx context.Context) (Stored, error) {
	st, err := b.o.Store.Dump(ctx)
	if err != nil {
		return Stored{}, err
	}
	out := Stored{Topics: map[tiers.TopicID]int64{}}
	catalog := b.Catalog()
	for _, s := range st.Segments {
		bytes := s.Size + s.MetaSize
		if _, known := catalog.TopicByID(s.Partition.Topic); known {
			out.Topics[s.Partition.Topic] += bytes
		} else {
			out.Deleted += bytes
		}
	}
	return out, nil
}
