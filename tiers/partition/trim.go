package partition

import (
	"context"

	"github.com/strandline-io/strandline/tiers"
)

// DeleteRecords removes what is below upTo, in every tier: LogStart moves there,
// in the middle of a segment too. tiers.NoOffset stands for the high watermark.
// It returns the log start that holds afterwards, which is above upTo if it was so
// before. The new start is remembered in the control plane, in the bucket and on
// disk before it returns, and every reader sees it; files and objects go in the
// background. Above the high watermark it is OffsetOutOfRange and changes nothing
// (B2).
func (o *Owner) DeleteRecords(ctx context.Context, upTo tiers.Offset) (tiers.Offset, error) {
	panic("contract")
}
