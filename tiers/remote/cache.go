package remote

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/strandline-io/strandline/tiers"
)

// CacheOptions bound a Cache.
type CacheOptions struct {
	Bytes      int64 // memory for chunks, default 128 MiB
	MetaBytes  int64 // memory for decoded companions, default 64 MiB
	Registerer prometheus.Registerer
}

// Cache serves tiered reads: chunks of records objects and decoded companions,
// held in memory up to a limit. A chunk is fetched once however many readers
// wait for it, goes on if a reader leaves (report 060), and is kept only if its
// CRC-32C is that of the companion; a companion only if its own CRC holds.
type Cache struct{}

// NewCache returns a cache over b.
func NewCache(b Bucket, o CacheOptions) *Cache { panic("contract") }

// Bucket is the bucket behind the cache.
func (c *Cache) Bucket() Bucket { panic("contract") }

// Meta returns the companion of seg. It must not be changed.
func (c *Cache) Meta(ctx context.Context, seg tiers.RemoteSegment) (*SegmentMeta, error) {
	panic("contract")
}

// ReadAt fills dst from offset off of the records object of seg; it reads fewer
// bytes only at the end, with io.EOF.
func (c *Cache) ReadAt(ctx context.Context, seg tiers.RemoteSegment, dst []byte, off int64) (int, error) {
	panic("contract")
}

// Close stops fetches under way and waits for them.
func (c *Cache) Close() { panic("contract") }
