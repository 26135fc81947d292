package control

import (
	"context"

	"github.com/strandline-io/strandline/tiers/remote"
)

// PutChanges writes an object of changes as a journal of the generation does.
func PutChanges(ctx context.Context, b remote.Bucket, generation int64, cs ...Change) error {
	return (&Journal{bucket: b, generation: generation}).putChanges(ctx, cs)
}
