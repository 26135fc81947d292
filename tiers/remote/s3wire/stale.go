package s3wire

import (
	"context"
	"errors"
	"time"

	"github.com/strandline-io/strandline/tiers/remote"
)

// AbortStale drops the multipart uploads under the prefix that were begun more
// than olderThan ago. MinIO lists uploads by exact key only, so there this finds
// none; it purges them itself.
func (b *Bucket) AbortStale(ctx context.Context, olderThan time.Duration) (int, error) {
	before := b.cfg.Now().Add(-olderThan)
	stale, err := b.staleUploads(ctx, before)
	if err != nil {
		return 0, err
	}
	for i, u := range stale {
		if err := b.abort(ctx, u.Key, u.ID); err != nil && !errors.Is(err, remote.ErrNotFound) {
			return i, err
		}
	}
	return len(stale), nil
}

// staleUploads lists first and aborts later: markers that point at an upload
// that is gone confuse some stores.
func (b *Bucket) staleUploads(ctx context.Context, before time.Time) ([]UnfinishedUpload, error) {
	var stale []UnfinishedUpload
	req := UploadsRequest{Prefix: b.root()}
	for {
		rctx, f, done := b.attempt(ctx, remote.OpListUploads, "", 0, 0)
		page, err := b.client.ListUploads(rctx, req)
		done()
		if err != nil {
			return nil, b.fail(ctx, "list uploads", "", reads, f, err)
		}
		for _, u := range page.Uploads {
			if _, ours := b.relative(u.Key); ours && u.Begun.Before(before) {
				stale = append(stale, u)
			}
		}
		if !page.Truncated {
			return stale, nil
		}
		next := UploadsRequest{Prefix: req.Prefix, KeyMarker: page.NextKeyMarker, IDMarker: page.NextIDMarker}
		if next == req || next.KeyMarker == "" {
			return nil, b.badListing("list uploads", "it says that more follows after %q, without a marker that leads there", req.KeyMarker)
		}
		req = next
	}
}
