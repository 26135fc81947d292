package s3wire

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/strandline-io/strandline/tiers/remote"
)

// Limits of Delete.
const (
	deleteBatch    = 1000 // S3's limit of one DeleteObjects
	deleteInFlight = 8    // of single DELETEs, where a store takes no batches
)

// Delete removes keys, 1000 in one request. If some cannot be removed the others
// are; the error names the first that stayed.
func (b *Bucket) Delete(ctx context.Context, keys ...string) error {
	for _, key := range keys {
		if err := remote.CheckKey(key); err != nil {
			return remote.Fail("delete", key, err)
		}
	}
	if len(keys) == 1 {
		return b.deleteOne(ctx, keys[0])
	}
	var first error
	for batch := range slices.Chunk(keys, deleteBatch) {
		if err := b.deleteMany(ctx, batch); err != nil && first == nil {
			first = err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return first
}

func (b *Bucket) deleteOne(ctx context.Context, key string) error {
	rctx, f, done := b.attempt(ctx, remote.OpDelete, key, 0, 0)
	defer done()
	err := b.client.DeleteOne(rctx, b.full(key))
	if err == nil {
		return nil
	}
	if err = b.fail(ctx, "delete", key, writes, f, err); errors.Is(err, remote.ErrNotFound) {
		return nil
	}
	return err
}

func (b *Bucket) deleteMany(ctx context.Context, keys []string) error {
	if b.oneByOne.Load() {
		return b.deleteSingly(ctx, keys)
	}
	whole := make([]string, len(keys))
	for i, key := range keys {
		whole[i] = b.full(key)
	}
	rctx, f, done := b.attempt(ctx, remote.OpDeleteMany, keys[0], 1<<20, 0)
	answers, err := b.client.DeleteMany(rctx, whole)
	done()
	switch {
	case err != nil && takesNoBatches(b.client.Fault(err)):
		b.oneByOne.Store(true)
		return b.deleteSingly(ctx, keys)
	case err != nil:
		return b.fail(ctx, "delete", keys[0], writes, f, err)
	}
	return b.checkDeleted(whole, answers)
}

// takesNoBatches reports whether a store refuses DeleteObjects as such.
func takesNoBatches(f Fault) bool {
	switch f.Code {
	case "MissingContentMD5", "InvalidRequest", "NotImplemented", "MethodNotAllowed":
		return true
	}
	return f.Status == http.StatusNotImplemented || f.Status == http.StatusMethodNotAllowed
}

// checkDeleted wants an answer for every key: one that the store passed over may
// still be there.
func (b *Bucket) checkDeleted(whole []string, answers []Deleted) error {
	silent := make(map[string]bool, len(whole))
	for _, key := range whole {
		silent[key] = true
	}
	for _, a := range answers {
		if a.Fault == (Fault{}) {
			delete(silent, a.Key)
			continue
		}
		class := classify(a.Fault)
		if errors.Is(class, remote.ErrNotFound) {
			delete(silent, a.Key)
			continue
		}
		key, _ := b.relative(a.Key)
		return failf("delete", b.place(key), "%w: %s", class, describe(a.Fault, b.cfg))
	}
	for _, key := range whole {
		if silent[key] {
			key, _ = b.relative(key)
			return failf("delete", b.place(key), "%w: the store answered for %d of %d keys", remote.ErrUnavailable, len(whole)-len(silent), len(whole))
		}
	}
	return nil
}

func (b *Bucket) deleteSingly(ctx context.Context, keys []string) error {
	var g errgroup.Group
	g.SetLimit(deleteInFlight)
	for _, key := range keys {
		g.Go(func() error {
			if err := b.deleteOne(ctx, key); err != nil {
				return fmt.Errorf("one by one: %w", err)
			}
			return nil
		})
	}
	return g.Wait()
}
