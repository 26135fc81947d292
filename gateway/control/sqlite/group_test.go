package sqlite_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/gateway/control/sqlite"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/fsys/mem"
)

// held is a store whose next commit is held at its fsync.
type held struct {
	*sqlite.Store
	disk    *mem.FS
	fs      *fsys.Faulty
	ses     control.Session
	topic   control.Topic
	release func()
}

// hold opens a store with a topic and holds a commit, so that what follows waits
// together. To be called in a bubble.
func hold(t *testing.T) *held {
	t.Helper()
	disk := mem.New()
	fs := fsys.NewFaulty(disk)
	s, err := sqlite.Open(fs, "/control.db", options(0))
	if err != nil {
		t.Fatal(err)
	}
	h := &held{Store: s, disk: disk, fs: fs}
	if h.ses, err = s.OpenSession(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if h.topic, err = s.CreateTopic(t.Context(), h.ses, control.NewTopic{Name: "t", Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	gate, reached := make(chan struct{}), make(chan fsys.Op)
	fs.Add(fsys.Fault{Kinds: fsys.OpSyncData, Hold: gate, Reached: reached})
	first := make(chan error, 1)
	go func() { first <- h.commit(t.Context(), "first", 1) }()
	<-reached
	h.release = func() {
		close(gate)
		if err := <-first; err != nil {
			t.Error(err)
		}
	}
	return h
}

func (h *held) commit(ctx context.Context, group string, gen tiers.HistoryGen) error {
	good := control.OffsetCommit{Group: group, Partition: tiers.PartitionID{Topic: h.topic.ID}, Gen: 1, Offset: 5}
	last := good
	last.Gen = gen
	return h.CommitOffsets(ctx, h.ses, []control.OffsetCommit{good, last})
}

func (h *held) groups(t *testing.T) map[string]bool {
	t.Helper()
	gs, err := h.Groups(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, g := range gs {
		out[g] = true
	}
	return out
}

// TestGroupCommit shows that mutations that wait together cost one fsync, and
// that one that is refused undoes itself only.
func TestGroupCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers = 90
		h := hold(t)
		answers := make([]chan error, callers)
		for i := range answers {
			answers[i] = make(chan error, 1)
			gen := tiers.HistoryGen(1 + i%3/2) // Each third is of a history that is not there.
			go func() { answers[i] <- h.commit(t.Context(), fmt.Sprint("g", i), gen) }()
		}
		synctest.Wait()
		if n := h.Waiting(); n != callers {
			t.Fatalf("%d wait", n)
		}
		before := len(h.fs.Ops(fsys.OpAnySync))
		h.release()
		for i, c := range answers {
			if err := <-c; (err != nil) != (i%3 == 2) || err != nil && tiers.KindOf(err) != tiers.StaleFence {
				t.Errorf("caller %d: %v", i, err)
			}
		}
		if n := len(h.fs.Ops(fsys.OpAnySync)) - before; n != 1 {
			t.Errorf("%d syncs for %d callers", n, callers)
		}
		gs := h.groups(t)
		for i := range callers {
			if name := fmt.Sprint("g", i); gs[name] != (i%3 != 2) {
				t.Errorf("group %s is there: %v", name, gs[name])
			}
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestAbandoned shows that a caller whose context ends while it waits is told
// that nothing was done, and that this is true.
func TestAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := hold(t)
		ctx, cancel := context.WithCancel(t.Context())
		answer := make(chan error, 1)
		go func() { answer <- h.commit(ctx, "abandoned", 1) }()
		synctest.Wait()
		cancel()
		if err := <-answer; tiers.KindOf(err) != tiers.TimedOut {
			t.Errorf("an abandoned commit: %v", err)
		}
		h.release()
		if gs := h.groups(t); !gs["first"] || gs["abandoned"] {
			t.Errorf("groups %v", gs)
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestReadsSeeOnlyWhatIsDurable holds a commit and asks meanwhile.
func TestReadsSeeOnlyWhatIsDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := hold(t)
		read := make(chan map[string]bool, 1)
		go func() { read <- h.groups(t) }()
		synctest.Wait()
		select {
		case gs := <-read:
			t.Errorf("answered %v while the fsync ran", gs)
		default:
		}
		h.release()
		if gs := <-read; !gs["first"] {
			t.Errorf("groups %v", gs)
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestCloseWhileCallersWait shows that every caller gets an answer, and that one
// who is told Closed was not obeyed.
func TestCloseWhileCallersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := hold(t)
		answer, closed := make(chan error, 1), make(chan error, 1)
		go func() { answer <- h.commit(t.Context(), "late", 1) }()
		synctest.Wait()
		go func() { closed <- h.Close() }()
		synctest.Wait()
		h.release()
		late := <-answer
		if late != nil && tiers.KindOf(late) != tiers.Closed {
			t.Errorf("a commit during Close: %v", late)
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}
		s, err := sqlite.Open(h.disk, "/control.db", options(0))
		if err != nil {
			t.Fatal(err)
		}
		h.Store = s
		if gs := h.groups(t); !gs["first"] || gs["late"] != (late == nil) {
			t.Errorf("groups %v after the answer %v", gs, late)
		}
		if err = s.Close(); err != nil {
			t.Error(err)
		}
	})
}
