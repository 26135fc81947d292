package s3wire

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/strandline-io/strandline/tiers/remote"
)

// errWrongRegion marks faults whose cure is another region setting. It is a
// denial to whoever asks with errors.Is.
var errWrongRegion = fmt.Errorf("%w: the request was made for the wrong region", remote.ErrDenied)

// NoCredentials is the code that a driver gives to an error of its chain of
// credentials: the request was never made.
const NoCredentials = "NoCredentials"

// errRefused is an answer that fits none of the errors of the seam.
var errRefused = errors.New("the object store refuses the request")

// byCode maps S3's error codes, those of AWS first, then what MinIO, versitygw
// and others send instead.
func byCode(code string) error {
	switch code {
	case "NoSuchKey", "NoSuchUpload", "NoSuchVersion":
		return remote.ErrNotFound
	case "NoSuchBucket":
		return remote.ErrNoBucket
	case "PreconditionFailed":
		return remote.ErrPrecondition
	case "ConditionalRequestConflict", "OperationAborted":
		return remote.ErrConflict
	case "SlowDown", "SlowDownRead", "SlowDownWrite", "Throttling", "ThrottlingException", "RequestLimitExceeded",
		"RequestThrottled", "RequestThrottledException", "TooManyRequests", "TooManyRequestsException", "BandwidthLimitExceeded", "ServiceUnavailable":
		return remote.ErrThrottled
	case "AuthorizationHeaderMalformed", "PermanentRedirect", "TemporaryRedirect", "IllegalLocationConstraintException", "InvalidRegion", "IncorrectEndpoint":
		return errWrongRegion
	case "AccessDenied", "AllAccessDisabled", "AccountProblem", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken",
		"TokenRefreshRequired", "RequestTimeTooSkewed", "NotSignedUp", "XAdminUserNotFound", NoCredentials:
		return remote.ErrDenied
	case "InvalidRange", "RequestedRangeNotSatisfiable":
		return remote.ErrRange
	case "BadDigest", "InvalidDigest", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch":
		return remote.ErrChecksum
	case "InternalError", "RequestTimeout", "RequestTimeoutException", "IncompleteBody", "ServerBusy":
		return remote.ErrUnavailable
	case "KeyTooLongError", "XMinioInvalidObjectName", "ObjectNameTooLong":
		return remote.ErrBadKey
	}
	return nil
}

func byStatus(status int) error {
	switch status {
	case http.StatusNotFound:
		return remote.ErrNotFound
	case http.StatusUnauthorized, http.StatusForbidden:
		return remote.ErrDenied
	case http.StatusConflict:
		return remote.ErrConflict
	case http.StatusPreconditionFailed:
		return remote.ErrPrecondition
	case http.StatusRequestedRangeNotSatisfiable:
		return remote.ErrRange
	case http.StatusTooManyRequests:
		return remote.ErrThrottled
	case http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return errWrongRegion
	case http.StatusRequestTimeout:
		return remote.ErrUnavailable
	}
	if status >= http.StatusInternalServerError && status != http.StatusNotImplemented {
		return remote.ErrUnavailable
	}
	return errRefused
}

// classify tells which error of the seam f is: by its code, and by the status
// where the code says nothing.
func classify(f Fault) error {
	if err := byCode(f.Code); err != nil {
		return err
	}
	return byStatus(f.Status)
}

// effect is what a request does to the store, which decides what an answer that
// did not come leaves open.
type effect uint8

const (
	reads  effect = iota // nothing: a lost answer is no loss
	writes               // repeating it gives the same state
	swaps                // a condition guards it: repeating it may fail on its own success
)

// fail makes the error of a request. ctx is the caller's, f what happened on the
// wire.
func (b *Bucket) fail(ctx context.Context, op, key string, e effect, f *flight, err error) error {
	fault := b.client.Fault(err)
	place := b.place(key)
	// A success whose body breaks off tells no more than no answer at all.
	if fault.Code == "" && (fault.Status == 0 || fault.Status/100 == 2) {
		return noAnswer(ctx, op, place, e, f, err)
	}
	class := classify(fault)
	detail := describe(fault, b.cfg)
	open := errors.Is(class, remote.ErrUnavailable) || errors.Is(class, remote.ErrThrottled)
	if e == swaps && open && fault.Status >= http.StatusInternalServerError {
		// The answer may come from something in front of the store that
		// gave up after the store had written.
		class = fmt.Errorf("%w: %w", remote.ErrUnknownOutcome, class)
	}
	return remote.RetryAfter(failf(op, place, "%w: %s", class, detail), f.retryAfter())
}

// failf is remote.Fail of a formatted error.
func failf(op, place, format string, args ...any) error {
	return remote.Fail(op, place, fmt.Errorf(format, args...))
}

// noAnswer is the error of a request that got none.
func noAnswer(ctx context.Context, op, place string, e effect, f *flight, err error) error {
	cause := f.cause(err)
	open := e != reads && f.reachedStore()
	class := remote.ErrUnavailable
	if open {
		class = fmt.Errorf("%w: %w", remote.ErrUnknownOutcome, remote.ErrUnavailable)
	}
	switch {
	case ctx.Err() != nil && open:
		return failf(op, place, "%w: %w", remote.ErrUnknownOutcome, ended(ctx))
	case ctx.Err() != nil:
		return remote.Fail(op, place, ended(ctx))
	case errors.Is(cause, errLocal):
		return remote.Fail(op, place, cause)
	case errors.Is(cause, context.DeadlineExceeded):
		return failf(op, place, "%w: no answer in the time of one attempt", class)
	}
	return failf(op, place, "%w: %v", class, cause)
}

// ended says how a context ended and, where it knows, why.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// describe is the store's answer in words, with the setting to change where one
// is known.
func describe(f Fault, c Config) string {
	var b strings.Builder
	if f.Status != 0 {
		fmt.Fprintf(&b, "%d ", f.Status)
	}
	b.WriteString(f.Code)
	if f.Message != "" {
		b.WriteString(": ")
		b.WriteString(f.Message)
	}
	if hint := advice(f, c); hint != "" {
		b.WriteString(" (")
		b.WriteString(hint)
		b.WriteByte(')')
	}
	return b.String()
}

func advice(f Fault, c Config) string {
	class := classify(f)
	switch {
	case errors.Is(class, errWrongRegion) && f.Region != "" && f.Region != c.Region:
		return fmt.Sprintf("the bucket is in region %s, the setting says %s", f.Region, c.Region)
	case errors.Is(class, errWrongRegion):
		return fmt.Sprintf("check region %s and the endpoint", c.Region)
	case errors.Is(class, remote.ErrNoBucket):
		return fmt.Sprintf("create bucket %s or check its name and the endpoint", c.Bucket)
	case errors.Is(class, remote.ErrDenied):
		return "check the keys, the clock and what they may do"
	case errors.Is(class, errRefused) && c.Checksum == ChecksumCRC32C && mentionsChecksum(f):
		return "a store that knows no x-amz-checksum-crc32c header needs checksum=md5 in the bucket URL"
	}
	return ""
}

func mentionsChecksum(f Fault) bool {
	return strings.Contains(strings.ToLower(f.Code+" "+f.Message), "checksum") || f.Status == http.StatusNotImplemented
}
