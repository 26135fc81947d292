package partition

import "context"

// Retain runs a retention pass now, and returns when what was due at the call is
// gone from both tiers (but for objects that wait out Retention.Delay), or with
// the first error.
func (o *Owner) Retain(ctx context.Context) error { panic("contract") }
