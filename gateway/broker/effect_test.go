package broker

import (
	"testing"
	"time"

	"github.com/strandline-io/strandline/tiers/partition"
	"github.com/strandline-io/strandline/tiers/plan"
)

func TestDeletesMore(t *testing.T) {
	with := func(size int64, age time.Duration, forget bool) partition.Config {
		return partition.Config{Retention: partition.Retention{Total: plan.Limits{Bytes: size, Age: age}, ForgetRemote: forget}}
	}
	for name, c := range map[string]struct {
		before, after partition.Config
		want          bool
	}{
		"the same":      {with(5, 5, false), with(5, 5, false), false},
		"less bytes":    {with(5, 5, false), with(4, 5, false), true},
		"a limit":       {with(-1, -1, false), with(-1, 9, false), true},
		"more":          {with(5, 5, false), with(6, 9, false), false},
		"no limit":      {with(5, 5, false), with(-1, -1, false), false},
		"switching off": {with(5, 5, false), with(5, 5, true), true},
		"off already":   {with(5, 5, true), with(5, 5, true), false},
	} {
		if got := deletesMore(c.before, c.after); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
