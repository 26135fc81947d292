package doctor

import (
	"os"
	"path"
	"strconv"
	"strings"
)

// memoryLimit is the tightest limit on this process's memory, in bytes, and
// where it comes from; 0 if none is known.
func memoryLimit() (limit int64, what string) {
	meminfo, _ := os.ReadFile("/proc/meminfo") // without it, the control groups may still tell
	limit, what = parseMemTotal(string(meminfo)), "of this machine"
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return limit, what
	}
	for _, file := range limitFiles(string(groups)) {
		raw, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if n := parseLimit(string(raw)); n > 0 && (limit == 0 || n < limit) {
			limit, what = n, "of the control group"
		}
	}
	return limit, what
}

// parseMemTotal reads the line "MemTotal:  24622104 kB".
func parseMemTotal(meminfo string) int64 {
	for line := range strings.SplitSeq(meminfo, "\n") {
		if rest, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			if err == nil {
				return n << 10
			}
		}
	}
	return 0
}

// parseLimit reads a limit of a control group: a number, or "max". Version 1 has
// a number near 2^63 instead of that.
func parseLimit(s string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	if err != nil || n >= 1<<60 {
		return 0
	}
	return n
}

// limitFiles are the files that may hold a limit: those of the group that
// /proc/self/cgroup names and of the groups above it.
func limitFiles(groups string) []string {
	var out []string
	for line := range strings.SplitSeq(groups, "\n") {
		parts := strings.SplitN(line, ":", 3)
		if len(parts) != 3 {
			continue
		}
		root, file := "/sys/fs/cgroup", "memory.max"
		if parts[1] != "" { // version 1: one hierarchy for each controller
			if !strings.Contains(","+parts[1]+",", ",memory,") {
				continue
			}
			root, file = "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
		}
		for group := path.Clean("/" + parts[2]); ; group = path.Dir(group) {
			out = append(out, path.Join(root, group, file))
			if group == "/" {
				break
			}
		}
	}
	return out
}
