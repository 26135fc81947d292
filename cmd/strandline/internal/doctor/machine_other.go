//go:build !unix

package doctor

import "errors"

func openFileLimit() (uint64, error) { return 0, errors.ErrUnsupported }
