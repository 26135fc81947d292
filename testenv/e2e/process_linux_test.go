package e2e

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

// proc is what Linux knows of a process.
type proc struct {
	rss, peak int64 // bytes
	files     int   // open files, sockets included
	read      int64 // bytes that it asked to be read, of files and sockets
}

func processOf(t testing.TB, pid int) proc {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/", pid)
	status, io := keyed(t, dir+"status"), keyed(t, dir+"io")
	fds, err := os.ReadDir(dir + "fd")
	if err != nil {
		t.Fatal(err)
	}
	return proc{rss: status["VmRSS"] << 10, peak: status["VmHWM"] << 10, files: len(fds), read: io["rchar"]}
}

// keyed reads a file of lines such as "VmRSS:   1234 kB".
func keyed(t testing.TB, file string) map[string]int64 {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int64{}
	for line := range strings.SplitSeq(string(raw), "\n") {
		name, rest, _ := strings.Cut(line, ":")
		if f := strings.Fields(rest); len(f) > 0 {
			if n, err := strconv.ParseInt(f[0], 10, 64); err == nil {
				out[name] = n
			}
		}
	}
	return out
}
