package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/strandline-io/strandline/gateway/admin/client"
)

// evictTime bounds how long a node may take to drop what it has.
const evictTime = 10 * time.Minute

// evict closes and copies everything, and has the node drop it from its disk. The
// topic's own limits are put back in the end: they do not bring anything back.
func evict(ctx context.Context, a *client.Client, topic string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, evictTime)
	defer cancel()
	t, err := a.Topic(ctx, topic)
	if err != nil {
		return fmt.Errorf("evict topic %s: %w", topic, err)
	}
	none := "0"
	change, back := map[string]*string{}, map[string]*string{}
	for _, name := range []string{"local.retention.ms", "local.retention.bytes"} {
		change[name], back[name] = &none, nil
		if v, set := t.Configs[name]; set {
			back[name] = &v
		}
	}
	for _, p := range t.Detail {
		if err := errors.Join(a.Roll(ctx, topic, p.Index), a.Copy(ctx, topic, p.Index, true)); err != nil {
			return fmt.Errorf("evict topic %s, partition %d: %w", topic, p.Index, err)
		}
	}
	if err := a.AlterConfigs(ctx, topic, change); err != nil {
		return fmt.Errorf("evict topic %s: %w", topic, err)
	}
	defer func() {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		err = errors.Join(err, a.AlterConfigs(bounded, topic, back))
	}()
	for _, p := range t.Detail {
		if err := a.Retain(ctx, topic, p.Index, true); err != nil {
			return fmt.Errorf("evict topic %s, partition %d: %w", topic, p.Index, err)
		}
	}
	if t, err = a.Topic(ctx, topic); err != nil {
		return fmt.Errorf("evict topic %s: %w", topic, err)
	}
	for _, p := range t.Detail {
		if p.LocalLogStart < p.HighWatermark {
			return fmt.Errorf("evict topic %s: partition %d still has offsets %d to %d on its disk: `strandline segments %s/%d --explain` says why",
				topic, p.Index, p.LocalLogStart, p.HighWatermark, topic, p.Index)
		}
	}
	return nil
}
