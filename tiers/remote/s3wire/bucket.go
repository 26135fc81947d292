package s3wire

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/remote"
)

// Bucket is remote.Bucket over a Client.
type Bucket struct {
	cfg       Config
	driver    string
	client    Client
	transport *Transport
	gate      *remote.Gate // nil: everything passes

	// oneByOne is set once the store has refused DeleteObjects: some want a
	// Content-MD5 that the SDKs no longer send.
	oneByOne atomic.Bool
}

var _ remote.Bucket = (*Bucket)(nil)

// NewBucket joins what a driver made. The configuration has its defaults and is
// valid; the client sends over the transport.
func NewBucket(driver string, c Config, client Client, t *Transport) *Bucket {
	return &Bucket{cfg: c, driver: driver, client: client, transport: t}
}

// UseGate returns the same bucket, with every request passing g. It is what
// remote.WithGate asks for.
func (b *Bucket) UseGate(g *remote.Gate) remote.Bucket {
	return &Bucket{cfg: b.cfg, driver: b.driver, client: b.client, transport: b.transport, gate: g}
}

// Caps says what the store can do. Whether it truly obeys conditions is for the
// self-test at start-up to find out.
func (b *Bucket) Caps() remote.Caps {
	return remote.Caps{ConditionalPut: true, StoresCRC32C: b.cfg.Checksum == ChecksumCRC32C}
}

// String is the bucket's URL without secrets.
func (b *Bucket) String() string { return b.cfg.URL(b.driver) }

// Close closes the idle connections. Calls under way go on.
func (b *Bucket) Close() error {
	b.transport.CloseIdleConnections()
	return nil
}

// full is the whole key of a key below the prefix.
func (b *Bucket) full(key string) string { return b.root() + key }

// root is what every whole key starts with.
func (b *Bucket) root() string {
	if b.cfg.Prefix == "" {
		return ""
	}
	return b.cfg.Prefix + "/"
}

// relative is the key below the prefix; ok is false for a key outside of it.
func (b *Bucket) relative(whole string) (key string, ok bool) {
	return strings.CutPrefix(whole, b.root())
}

// place names an object, or the bucket, in errors.
func (b *Bucket) place(key string) string {
	return "s3://" + b.cfg.Bucket + "/" + b.full(key)
}

// attempt is the context of one request that carries size bytes. grace is how
// long the store may work on it besides. It waits until the gate lets the request
// pass; if ctx ends first, the context that it returns has ended too. done must
// be called.
func (b *Bucket) attempt(ctx context.Context, op remote.Op, key string, size int64, grace time.Duration) (rctx context.Context, f *flight, done context.CancelFunc) {
	const rate = 1 << 20 // bytes per second: less is a failure
	f = b.begin(ctx, op, key, grace)
	limit := b.cfg.HTTP.Attempt + time.Duration(size/rate)*time.Second + grace
	rctx, cancel := remote.WithPatience(ctx, limit, errAttemptOver)
	return withFlight(rctx, f), f, func() {
		f.pass.Done()
		cancel()
	}
}

// errAttemptOver ends a request that took too long in all.
var errAttemptOver = fmt.Errorf("the time of one attempt: %w", context.DeadlineExceeded)

// begin waits for the gate and returns the flight of a request.
func (b *Bucket) begin(ctx context.Context, op remote.Op, key string, grace time.Duration) *flight {
	pass, err := b.gate.Begin(ctx, remote.Request{Op: op, Key: key})
	if err != nil {
		pass = nil // ctx has ended: the request will not be sent
	}
	return &flight{grace: grace, pass: pass}
}

// checkCond refuses conditions that no store could decide, and conditional
// bodies whose refusal could get lost.
func (b *Bucket) checkCond(key string, size int64, c remote.Cond) error {
	switch {
	case c == remote.Cond{}:
		return nil
	case c.Absent && c.ETag != "":
		return tiers.E(tiers.InvalidRequest, "put", b.place(key), "the object cannot both be absent and have ETag %s", c.ETag)
	case size > MaxConditional:
		return tiers.E(tiers.MessageTooLarge, "put", b.place(key), "%d bytes under a condition: at most %d are safe", size, MaxConditional)
	}
	return nil
}

// badListing is the error of a store that breaks the rules of a listing.
func (b *Bucket) badListing(op, format string, args ...any) error {
	return failf(op, b.place(""), "%w: the store's listing is broken: %s", remote.ErrUnavailable, fmt.Sprintf(format, args...))
}
