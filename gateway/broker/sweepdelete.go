package broker

import (
	"context"
	"errors"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/remote"
)

// delete deletes keys, unless it is a dry run, not faster than the store likes.
// What is refused in a batch is tried one by one, and holds up no other batch.
func (w *sweeper) delete(ctx context.Context, keys []string) error {
	var left error
	for len(keys) > 0 && !w.rep.DryRun {
		batch := keys[:min(len(keys), sweepBatch)]
		keys = keys[len(batch):]
		refused, err := w.remove(ctx, batch...)
		if refused != nil && err == nil {
			refused, err = w.oneByOne(ctx, batch)
		}
		if err != nil {
			return err
		}
		if left == nil {
			left = refused
		}
		if len(keys) > 0 && !pause(ctx, sweepPace) {
			return context.Cause(ctx)
		}
	}
	return left
}

// remove deletes keys in one request. refused is what the store says to that.
func (w *sweeper) remove(ctx context.Context, keys ...string) (refused, err error) {
	if err := w.b.mayDelete(ctx); err != nil {
		return nil, err
	}
	if err := w.bucket.Delete(ctx, keys...); err != nil {
		return tiers.E(tiers.RemoteUnavailable, "sweep", keys[0], "%w", err), nil
	}
	w.rep.Deleted += int64(len(keys))
	w.b.o.Log.Info("deleted objects that no row names", "objects", len(keys), "first", keys[0], "last", keys[len(keys)-1])
	return nil, nil
}

// oneByOne deletes keys each alone. Of a store that does not answer few are tried;
// one that denies single keys answers for the others.
func (w *sweeper) oneByOne(ctx context.Context, keys []string) (refused, err error) {
	count, inARow := 0, 0
	for _, key := range keys {
		no, err := w.remove(ctx, key)
		if err != nil {
			return nil, err
		}
		inARow++
		if no == nil {
			inARow = 0
			continue
		}
		count, refused = count+1, no
		if inARow >= giveUpAfter && !errors.Is(no, remote.ErrDenied) || ctx.Err() != nil {
			return nil, no
		}
	}
	if refused != nil {
		refused = tiers.E(tiers.RemoteUnavailable, "sweep", keys[0], "%d orphans of %d were refused: %w", count, len(keys), refused)
	}
	return refused, nil
}
