package doctor

import "golang.org/x/sys/unix"

// unsynchronized reports whether the kernel knows that nothing keeps the clock.
func unsynchronized() bool {
	var t unix.Timex // no modes: it is only read
	state, err := unix.Adjtimex(&t)
	return err == nil && (state == unix.TIME_ERROR || t.Status&unix.STA_UNSYNC != 0)
}
