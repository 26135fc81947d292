package local

import (
	"bytes"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/fsys/mem"
)

// Every change of the disk fails once: refused, torn if it is a write, and
// applied but reported as failed. What was acknowledged survives, before the
// failure and after it; what failed is not there.
func TestFaultPairs(t *testing.T) {
	probe := fsys.NewFaulty(mem.New())
	n := newNode(t, probe)
	n.open()
	life(newScript(n))
	n.close()
	ops := probe.Ops(fsys.OpMutation)
	total := len(ops)
	if total < 150 {
		t.Fatalf("only %d operations", total)
	}
	when := ""
	t.Cleanup(func() { t.Log(when) })
	for i := range total {
		faults := []fsys.Fault{{}, {Applied: true}, {Times: 2}}
		if ops[i].Kind == fsys.OpWrite {
			faults = append(faults, fsys.Fault{Short: 30})
		}
		for _, f := range faults {
			f.Kinds, f.Skip, f.Err = fsys.OpMutation, i, syscall.EIO
			when = fmt.Sprintf("operation %d of %d, %+v", i, total, f)
			checkFault(t, f, &when)
			if t.Failed() {
				return
			}
		}
	}
}

// An append that failed does not come back, even if all of it had been written.
func TestFailedAppendIsUndone(t *testing.T) {
	disk := mem.New()
	faulty := fsys.NewFaulty(disk)
	n := newNode(t, faulty)
	l := n.open()
	want := add(t, l, 1, 2)
	must(t, l.Sync())
	faulty.Add(fsys.Fault{Kinds: fsys.OpWrite, Name: logSuffix, Err: syscall.EIO, Applied: true})
	if err := put(l, build(t, plain(1), 2, 2)); tiers.KindOf(err) != tiers.StorageFailed || l.Broken() != nil || l.LogEnd() != 2 {
		t.Fatalf("%v, broken %v, end %d", err, l.Broken(), l.LogEnd())
	}
	for name, left := range map[string]*mem.FS{"killed": disk.KillCopy(), "synced": disk.SyncedCopy(), "crash": disk.CrashCopy(1)} {
		n.fs = left
		if l := n.open(); l.LogEnd() != 2 || !bytes.Equal(content(t, l), want) {
			t.Errorf("%s: end %d", name, l.LogEnd())
		}
	}

	faulty.Clear()
	faulty.Add(fsys.Fault{Kinds: fsys.OpWrite, Name: logSuffix, Err: syscall.EIO, Short: 70})
	faulty.Add(fsys.Fault{Kinds: fsys.OpTruncate, Err: syscall.EIO})
	if err := put(l, build(t, plain(1), 2, 2)); tiers.KindOf(err) != tiers.StorageFailed || l.Broken() == nil {
		t.Errorf("an append that could not be undone: %v, broken %v", err, l.Broken())
	}
}

func checkFault(t *testing.T, f fsys.Fault, when *string) {
	t.Helper()
	disk := mem.New()
	faulty := fsys.NewFaulty(disk)
	hits := faulty.Add(f)
	n := newNode(t, faulty)
	s := newScript(n)
	s.step("open", n.tryOpen)
	life(s)
	s.step("close", func() error { return errors.Join(n.log.Close(), n.disk.Close()) })
	if hits() == 0 {
		t.Errorf("%s: did not strike", *when)
	}
	*when += fmt.Sprintf(": %v", s.failed)
	if s.failed != nil && n.log != nil && s.e.doing != "open" && s.e.doing != "close" {
		checkAfterFault(t, s, *when)
	}
	for name, copied := range map[string]*mem.FS{"synced": disk.SyncedCopy(), "killed": disk.KillCopy(), "crash": disk.CrashCopy(1)} {
		checkCrash(t, copied, s.e, name+" after "+*when)
	}
}

// checkAfterFault goes on after a failure: the log either refuses everything or
// works.
func checkAfterFault(t *testing.T, s *script, when string) {
	t.Helper()
	l := s.n.log
	if s.e.doing == "append" {
		s.e.batches = s.e.batches[:len(s.e.batches)-1]
	}
	if l.Broken() != nil {
		for name, err := range map[string]error{
			"append": put(l, build(t, plain(30), l.LogEnd(), 1)), "sync": l.Sync(), "roll": l.Roll(),
			"truncate": l.TruncateTo(0), "drop": l.DropBefore(0), "assign": l.Assign(40, l.LogEnd()),
		} {
			if tiers.KindOf(err) != tiers.StorageFailed {
				t.Errorf("%s: %s of a broken log: %v", when, name, err)
			}
		}
		return
	}
	doing := s.e.doing
	s.failed = nil
	s.append(30, 3, plain(0))
	s.sync()
	if s.failed != nil {
		s.e.doing = doing // the second failure of the pair
		if l.Broken() == nil {
			s.e.batches = s.e.batches[:len(s.e.batches)-1]
		}
		return
	}
	s.e.doing = doing
}
