//go:build !race

package sqlite_test

// stride is 1: every point.
const stride = 1
