// Package remote is the object-store seam: what a bucket must do, how keys are
// laid out, the companion object of a segment, retries and budgets around a
// driver, and the chunk cache that serves tiered reads.
//
// Objects are immutable, with one exception: the cluster claim, which is changed
// by conditional writes only. A key names one segment's object for ever (R3).
// The drivers are in s3, minio, dir and memory; buckettest is what each must
// pass.
package remote

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"
)

// Errors of a Bucket, to be asked for with errors.Is.
var (
	ErrNotFound       = errors.New("no such object")
	ErrPrecondition   = errors.New("precondition failed")                    // 412: somebody else won, or an earlier try of ours did
	ErrConflict       = errors.New("conflicting write under way")            // 409: nothing is known, try again
	ErrUnknownOutcome = errors.New("the write may or may not have happened") // read back before doing anything else
	ErrThrottled      = errors.New("the object store asks to slow down")     // 503 SlowDown, 429
	ErrDenied         = errors.New("access denied")                          // 403, unknown key
	ErrRange          = errors.New("range outside the object")               // 416
	ErrChecksum       = errors.New("checksum mismatch")                      // BadDigest, or what was read does not match
	ErrNoBucket       = errors.New("no such bucket")                         // NoSuchBucket
	ErrUnavailable    = errors.New("the object store cannot be reached")     // connection refused, timeouts, 5xx
	ErrBadKey         = errors.New("illegal object key")                     // see CheckKey
)

// Bucket is one prefix of an object store. Keys are relative to the prefix. All
// methods are safe for concurrent use.
type Bucket interface {
	// Put stores body under key in one step: readers see all of it or nothing.
	// The CRC-32C of the body goes with it and the store refuses a body that
	// does not match. If o.If is set and does not hold, nothing changes and the
	// error is ErrPrecondition.
	Put(ctx context.Context, key string, body Body, o PutOptions) (Object, error)
	// Get opens the object, or the range of it that r names, for reading.
	Get(ctx context.Context, key string, r Range) (io.ReadCloser, Object, error)
	// ReadAt fills dst from offset off and returns how many bytes it read: fewer
	// than len(dst) only at the object's end, with io.EOF.
	ReadAt(ctx context.Context, key string, dst []byte, off int64) (int, error)
	// Stat returns what the store knows of the object, CRC32C included where it
	// keeps one.
	Stat(ctx context.Context, key string) (Object, error)
	// List yields objects in byte order of their keys. It ends with the first
	// error. A listing that the store breaks off or repeats is an error, never a
	// short answer.
	List(ctx context.Context, o ListOptions) iter.Seq2[Object, error]
	// Delete removes keys. A key that does not exist is no error.
	Delete(ctx context.Context, keys ...string) error
	// AbortStale drops multipart uploads, or temporary files, that were begun
	// before the given age, and returns how many.
	AbortStale(ctx context.Context, olderThan time.Duration) (int, error)
	// Caps says what the store can do.
	Caps() Caps
	// String is the bucket's URL without secrets.
	String() string
	Close() error
}

// Body is what Put sends. It can be opened again and at any range, so a retry
// sends the whole of it (report 062).
type Body interface {
	Size() int64
	// Open returns the n bytes from off on.
	Open(off, n int64) (io.ReadSeekCloser, error)
}

// Object describes a stored object.
type Object struct {
	Key      string
	Size     int64
	ETag     string // opaque; equal only if the content is
	CRC32C   uint32 // Castagnoli, of the whole object
	HasCRC   bool   // whether the store told CRC32C
	Modified time.Time
	IsPrefix bool // a common prefix of a listing with a delimiter
}

// PutOptions qualify Put.
type PutOptions struct {
	If Cond
}

// Cond is the condition of a Put. The zero value is no condition.
type Cond struct {
	Absent bool   // the key must not exist
	ETag   string // the object must have this ETag
}

// Range is a part of an object. The zero value is all of it.
type Range struct {
	Off  int64
	Len  int64  // 0: to the end
	ETag string // of Get: if not empty the object must have it, else ErrPrecondition
}

// ListOptions select what List yields.
type ListOptions struct {
	Prefix     string
	StartAfter string // keys above this one only
	Delimiter  string // "/" or empty
}

// Caps says what a store can do.
type Caps struct {
	ConditionalPut bool // If-None-Match: * and If-Match on PUT are obeyed
	StoresCRC32C   bool // Stat tells CRC32C
}
