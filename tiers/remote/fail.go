package remote

import (
	"context"
	"errors"

	"github.com/strandline-io/strandline/tiers"
)

// kinds is the table from the errors of a Bucket to the kinds of the house. The
// first that matches counts.
var kinds = []struct {
	err  error
	kind tiers.Kind
}{
	{context.Canceled, tiers.Other},
	{context.DeadlineExceeded, tiers.TimedOut},
	{ErrPrecondition, tiers.Conflict},
	{ErrChecksum, tiers.CorruptMessage},
	{ErrBadKey, tiers.InvalidRequest},
	{ErrUnavailable, tiers.RemoteUnavailable},
	{ErrThrottled, tiers.RemoteUnavailable},
	{ErrConflict, tiers.RemoteUnavailable},
	{ErrUnknownOutcome, tiers.RemoteUnavailable},
	{ErrDenied, tiers.RemoteUnavailable},
	{ErrNoBucket, tiers.RemoteUnavailable},
}

// Fail wraps an error of a bucket with the operation and the key: what drivers
// return. nil stays nil, and so does an error that names the key already.
func Fail(op, key string, err error) error {
	var named *tiers.Error
	if err == nil || errors.As(err, &named) && named.Place == key && key != "" {
		return err
	}
	kind := tiers.Other
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			kind = k.kind
			break
		}
	}
	return &tiers.Error{Op: op, Place: key, Kind: kind, Err: err}
}
