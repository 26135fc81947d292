package s3wire

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/strandline-io/strandline/tiers/remote"
)

// SettingsClient is a Client that can read how a bucket is set up.
type SettingsClient interface {
	Versioning(ctx context.Context) (string, error)
	Lifecycle(ctx context.Context) ([]remote.LifecycleRule, error)
}

// codeNoLifecycle is the answer of a bucket without rules.
const codeNoLifecycle = "NoSuchLifecycleConfiguration"

var _ remote.SettingsReader = (*Bucket)(nil)

// Settings is remote.SettingsReader.
func (b *Bucket) Settings(ctx context.Context) (remote.Settings, error) {
	out := remote.Settings{Prefix: b.root(), Unread: map[string]error{}}
	c, ok := b.client.(SettingsClient)
	if !ok {
		return out, errors.ErrUnsupported
	}
	for _, part := range []struct {
		name string
		read func(context.Context) error
	}{
		{"versioning", func(ctx context.Context) (err error) {
			out.Versioning, err = c.Versioning(ctx)
			return err
		}},
		{"lifecycle", func(ctx context.Context) (err error) {
			out.Rules, err = c.Lifecycle(ctx)
			if b.client.Fault(err).Code == codeNoLifecycle {
				err = nil
			}
			return err
		}},
	} {
		rctx, f, done := b.attempt(ctx, remote.OpSettings, "", 0, 0)
		if err := part.read(rctx); err != nil {
			out.Unread[part.name] = b.unread(ctx, part.name, f, err)
		}
		done()
		if ctx.Err() != nil {
			return out, ctx.Err()
		}
	}
	return out, nil
}

// unread is why a part could not be read. A store that does not know what a
// lifecycle is has none.
func (b *Bucket) unread(ctx context.Context, part string, f *flight, err error) error {
	if fault := b.client.Fault(err); fault.Status == http.StatusNotImplemented || fault.Code == "NotImplemented" {
		return fmt.Errorf("read %s: the store does not have it: %w", part, errors.ErrUnsupported)
	}
	return b.fail(ctx, "read "+part, "", reads, f, err)
}
