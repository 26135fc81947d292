package local

import (
	"time"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/batch"
)

// Producers is the state of producers of one partition (spec s1.4): per producer
// id its epoch, its last five batches and its open transaction.
type Producers struct{}

// Check says whether a batch of a client may be appended. duplicate is true if it
// was appended before: then base is the offset that it got. The error kinds are
// InvalidProducerEpoch (47), OutOfOrderSequence (45), DuplicateSequence (46),
// UnknownProducer. A batch without a producer id always passes.
// pending are the headers of batches that will be appended before it.
func (p *Producers) Check(h batch.Header, pending []batch.Header) (base tiers.Offset, duplicate bool, err error) {
	panic("contract")
}

// Expire forgets producers that have written nothing since before.
func (p *Producers) Expire(before time.Time) int { panic("contract") }
