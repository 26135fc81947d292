// Package e2e runs the real program against real clients and a real S3 server on
// loopback: what a user would see.
package e2e

import (
	"os"
	"testing"

	"github.com/strandline-io/strandline/testenv/s3srv"
)

func TestMain(m *testing.M) { os.Exit(s3srv.Main(m)) }
