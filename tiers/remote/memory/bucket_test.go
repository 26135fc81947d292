package memory_test

import (
	"testing"

	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/buckettest"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

func TestAcceptance(t *testing.T) {
	t.Parallel()
	buckettest.Run(t, func(*testing.T) remote.Bucket { return memory.New() })
}
