package partition

import "github.com/strandline-io/strandline/tiers"

// EpochEnd is a leader epoch and the offset at which it ends.
type EpochEnd struct {
	Epoch tiers.LeaderEpoch
	End   tiers.Offset
}

// EpochEnd answers OffsetForLeaderEpoch: the largest epoch that is not above q
// and its end. Undefined is {NoEpoch, NoOffset}.
func (o *Owner) EpochEnd(current, q tiers.LeaderEpoch) (EpochEnd, error) {
	v := o.View()
	if err := o.admit("find epoch end", v, current); err != nil {
		return EpochEnd{}, err
	}
	e, end, ok := v.Lineage.EndFor(q, v.LogEnd)
	if !ok {
		return EpochEnd{tiers.NoEpoch, tiers.NoOffset}, nil
	}
	return EpochEnd{e, end}, nil
}
