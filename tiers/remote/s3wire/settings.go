package s3wire

import (
	"context"
	"errors"

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
			out.Unread[part.name] = b.fail(ctx, "read "+part.name, "", reads, f, err)
		}
		done()
		if ctx.Err() != nil {
			return out, ctx.Err()
		}
	}
	return out, nil
}
