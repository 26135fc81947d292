package fsys

import "strings"

// Kind is a set of kinds of file operations.
type Kind uint32

// The kinds of operations. An open that may create or truncate is a Create.
const (
	OpCreate Kind = 1 << iota
	OpOpen
	OpWrite
	OpTruncate
	OpSync     // Sync of a file
	OpSyncData // SyncData of a file
	OpPreallocate
	OpRead
	OpClose
	OpRename
	OpLink
	OpRemove
	OpRemoveAll
	OpMkdir
	OpSyncDir
	OpReadDir
	OpStat
	OpLock
	OpFree
	opEnd

	OpAny      = opEnd - 1
	OpAnySync  = OpSync | OpSyncData | OpSyncDir
	OpMutation = OpCreate | OpWrite | OpTruncate | OpAnySync | OpPreallocate | OpRename | OpLink | OpRemove | OpRemoveAll | OpMkdir
)

// String lists the kinds in k.
func (k Kind) String() string {
	var names []string
	for i, name := range []string{
		"create", "open", "write", "truncate", "sync", "syncdata", "preallocate", "read", "close", "rename", "link",
		"remove", "removeall", "mkdir", "syncdir", "readdir", "stat", "lock", "free",
	} {
		if k&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, "|")
}

// Op is one operation, as fault schedules and crash tests see it.
type Op struct {
	Seq     int // counts from 1
	Kind    Kind
	Name    string
	NewName string // of Rename and Link
	Off     int64  // of Write and Read, the new size of Truncate and Preallocate
	Len     int
}
