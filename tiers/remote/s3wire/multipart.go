package s3wire

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/strandline-io/strandline/tiers/remote"
)

// Limits of the clean-up of a failed upload, which goes on when the caller's
// context has ended.
const (
	abortTime  = 15 * time.Second // in all
	abortTries = 3
	lingerTime = 2 * time.Second       // for the answers to parts that were sent whole
	abortPause = 50 * time.Millisecond // more with each try
)

// putParts uploads body as sections of it, several at once, without buffers of
// its own. The object appears when the upload is completed; if anything fails
// before, the upload is dropped (report 137).
func (b *Bucket) putParts(ctx context.Context, key string, body remote.Body) (remote.Object, error) {
	cuts := cutParts(body.Size(), b.cfg.PartSize)
	crc, err := remote.BodyCRC32C(body)
	if err != nil {
		return remote.Object{}, remote.Fail("put", b.place(key), err)
	}
	rctx, f, done := b.attempt(ctx, remote.OpCreateUpload, key, 0, 0)
	id, err := b.client.CreateUpload(rctx, b.full(key), b.cfg.Checksum)
	done()
	if err != nil {
		return remote.Object{}, b.fail(ctx, "begin upload", key, reads, f, err)
	}
	parts, sent, err := b.sendParts(ctx, key, id, body, cuts)
	if err == nil && sent != crc {
		err = remote.Fail("put", b.place(key), errBodyChanged)
	}
	if err != nil {
		return remote.Object{}, b.abandon(ctx, key, id, err)
	}
	etag, err := b.complete(ctx, key, id, body.Size(), parts, crc)
	if err != nil {
		return remote.Object{}, b.abandon(ctx, key, id, err)
	}
	return b.stored(key, body.Size(), etag, crc), nil
}

// cut is the range of one part.
type cut struct{ off, n int64 }

// cutParts divides size bytes into parts of partSize, or of more where there
// would be too many.
func cutParts(size, partSize int64) []cut {
	if size > partSize*maxParts {
		partSize = (size + maxParts - 1) / maxParts
	}
	cuts := make([]cut, 0, (size+partSize-1)/partSize)
	for off := int64(0); off < size; off += partSize {
		cuts = append(cuts, cut{off, min(partSize, size-off)})
	}
	return cuts
}

// sendParts returns when no part is under way any more, so that an abort leaves
// nothing behind.
func (b *Bucket) sendParts(ctx context.Context, key, id string, body remote.Body, cuts []cut) ([]Part, uint32, error) {
	parts := make([]Part, len(cuts))
	crcs := make([]uint32, len(cuts))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(b.cfg.Concurrency)
	for i, c := range cuts {
		g.Go(func() error {
			if gctx.Err() != nil {
				return remote.Fail("upload parts", b.place(key), context.Cause(gctx))
			}
			var err error
			parts[i], crcs[i], err = b.sendPart(ctx, gctx, key, id, i+1, body, c)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, 0, err
	}
	var crc uint32
	for i, c := range cuts {
		crc = combineCRC(crc, crcs[i], c.n)
	}
	return parts, crc, nil
}

// sendPart uploads one part. ctx is the caller's, gctx ends when another part
// has failed.
func (b *Bucket) sendPart(ctx, gctx context.Context, key, id string, number int, body remote.Body, c cut) (Part, uint32, error) {
	op := fmt.Sprintf("upload part %d", number)
	src, err := openSummed(body, c.off, c.n, b.cfg.Checksum)
	if err != nil {
		return Part{}, 0, remote.Fail(op, b.place(key), err)
	}
	defer func() { _ = src.Close() }()
	pctx, release := linger(ctx, gctx)
	defer release()
	rctx, f, done := b.attempt(pctx, remote.OpUploadPart, key, c.n, 0)
	defer done()
	got, err := b.client.UploadPart(rctx, b.full(key), id, number, Upload{Body: cuttable{src, gctx}, Size: c.n, Sum: src.sum})
	if err != nil {
		return Part{}, 0, uploadGone(b.fail(ctx, op, key, reads, f, err))
	}
	if err := b.compare(key, src.sum, got.CRC32C); err != nil {
		return Part{}, 0, err
	}
	return Part{Number: number, ETag: TrimETag(got.ETag), CRC32C: src.sum.CRC32C}, src.crc, nil
}

// cuttable is the body of a part: it breaks off when ctx ends, and the store
// refuses what it got.
type cuttable struct {
	*summed
	ctx context.Context //nolint:containedctx // of the one request that reads it
}

func (c cuttable) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.summed.Read(p)
}

// linger is the context of a part, which outlives its parents by lingerTime. A
// part that was sent whole must be waited for: were its upload aborted meanwhile,
// the store could file the part afterwards and the upload would rise again (AWS
// documents it, versitygw does it). One that is not sent whole is cut instead.
func linger(ctx, gctx context.Context) (context.Context, context.CancelFunc) {
	lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(gctx, func() {
		if pause(lasting, lingerTime) {
			cancel()
		}
	})
	return lasting, func() { stop(); cancel() }
}

func (b *Bucket) complete(ctx context.Context, key, id string, size int64, parts []Part, crc uint32) (etag string, err error) {
	var whole Sum
	if b.cfg.Checksum == ChecksumCRC32C {
		whole.CRC32C = encodeCRC(crc)
	}
	// Some stores copy the parts together before they answer: a second for
	// every 16 MiB.
	rctx, f, done := b.attempt(ctx, remote.OpCompleteUpload, key, 0, time.Duration(size>>24)*time.Second)
	defer done()
	got, err := b.client.CompleteUpload(rctx, b.full(key), id, parts, whole)
	if err != nil {
		return "", uploadGone(b.fail(ctx, "complete upload", key, writes, f, err))
	}
	if err := b.compare(key, whole, got.CRC32C); err != nil {
		return "", err
	}
	return got.ETag, nil
}

// uploadGone says in words that can be acted on that the store no longer knows
// an upload: a lifecycle rule or another node's AbortStale dropped it. Nothing
// was written; the whole Put may be tried again.
func uploadGone(err error) error {
	if errors.Is(err, remote.ErrNotFound) {
		return failf("upload", "", "%w: it was dropped meanwhile: %s", remote.ErrUnavailable, err.Error())
	}
	return err
}

// abandon drops an upload after err, and says so if that fails. A part that the
// store was still taking in may keep an upload alive over its abort, so it is
// aborted until the store no longer knows it. MinIO never says that: there the
// last try stands for it.
func (b *Bucket) abandon(ctx context.Context, key, id string, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTime)
	defer cancel()
	var aerr error
	for try := range abortTries {
		aerr = b.abort(ctx, b.full(key), id)
		if errors.Is(aerr, remote.ErrNotFound) {
			return err
		}
		if !pause(ctx, time.Duration(try)*abortPause) {
			break
		}
	}
	if aerr == nil {
		return err
	}
	// The second error is told, not wrapped: it says nothing of the object.
	return fmt.Errorf("%w (the unfinished upload stays for AbortStale: %s)", err, aerr.Error())
}

// pause reports whether ctx left time for it.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// abort drops an upload by its whole key. One that is gone is ErrNotFound.
func (b *Bucket) abort(ctx context.Context, whole, id string) error {
	key, _ := b.relative(whole)
	rctx, f, done := b.attempt(ctx, remote.OpAbortUpload, key, 0, 0)
	defer done()
	err := b.client.AbortUpload(rctx, whole, id)
	if err == nil {
		return nil
	}
	return b.fail(ctx, "abort upload", key, reads, f, err)
}
