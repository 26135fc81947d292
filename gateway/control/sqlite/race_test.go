//go:build race

package sqlite_test

// stride thins the crash and fault points under the race detector, which makes
// SQLite about twenty times slower and sees nothing more in a single caller.
const stride = 9
