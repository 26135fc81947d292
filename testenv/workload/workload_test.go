package workload_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/strandline-io/strandline/testenv/workload"
)

// TestLives lives lives of fixed seeds; many more with STRANDLINE_SOAK.
func TestLives(t *testing.T) {
	seeds, length := uint64(8), 60
	if os.Getenv("STRANDLINE_SOAK") != "" {
		seeds, length = 400, 200
	}
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			workload.Begin(t, seed).Live(length)
		})
	}
}
