package doctor

import "fmt"

// holder is who holds a lock.
type holder struct {
	held  bool
	pid   int
	known bool // whether it could be found out
}

// String says it for people.
func (h holder) String() string {
	switch {
	case h.held:
		return fmt.Sprintf("used by process %d (the lock was looked at, not taken)", h.pid)
	case h.known:
		return "not used by a process that can be seen from here"
	}
	return "whether a process uses it is not known"
}
