package remote

import (
	"context"
	"errors"

	"github.com/strandline-io/strandline/tiers"
)

// Fail wraps an error of a bucket with the operation and the key: what drivers
// return. nil stays nil, and so does an error that names the key already.
func Fail(op, key string, err error) error {
	if err == nil {
		return nil
	}
	if named, ok := err.(*tiers.Error); ok && named.Place == key && key != "" { //nolint:errorlint // one deeper down has another kind
		return err
	}
	return &tiers.Error{Op: op, Place: key, Kind: kindOf(err), Err: err}
}

// kindOf is the table from the errors of a Bucket to the kinds of the house. The
// first that matches counts.
func kindOf(err error) tiers.Kind {
	for _, k := range []struct {
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
	} {
		if errors.Is(err, k.err) {
			return k.kind
		}
	}
	return tiers.Other
}
