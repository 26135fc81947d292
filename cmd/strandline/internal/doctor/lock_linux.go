package doctor

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// lockHolder asks the kernel who has the lock of a file. Taking it, even for a
// moment, could make a node that starts at the same time refuse.
func lockHolder(file string) holder {
	st, err := os.Stat(file)
	if os.IsNotExist(err) {
		return holder{known: true}
	}
	if err != nil {
		return holder{}
	}
	inode, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return holder{}
	}
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		return holder{}
	}
	h := findLock(string(locks), inode.Dev, inode.Ino)
	// Others show another device number to stat(2) than to the kernel's list.
	h.known = h.held || slices.Contains([]string{"ext4", "xfs", "f2fs", "tmpfs"}, fileSystem(file))
	return h
}

// findLock looks for a flock(2) of the inode in /proc/locks:
//
//	1: FLOCK  ADVISORY  WRITE 4242 fe:00:1311 0 EOF
func findLock(locks string, dev, ino uint64) holder {
	major := (dev>>8)&0xfff | (dev>>32)&^0xfff
	minor := dev&0xff | (dev>>12)&^0xff
	id := fmt.Sprintf("%02x:%02x:%d", major, minor, ino)
	for line := range strings.SplitSeq(locks, "\n") {
		f := strings.Fields(line)
		if len(f) < 6 || f[1] != "FLOCK" || f[5] != id {
			continue
		}
		pid, err := strconv.Atoi(f[4])
		if err != nil {
			continue
		}
		return holder{held: true, pid: pid}
	}
	return holder{}
}
