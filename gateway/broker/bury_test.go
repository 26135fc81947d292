package broker

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

// TestReport127StubbornObjectsOfDeletedTopics hold up no others, more of them in a
// row than are taken for a bucket that is away neither; and they go once they can.
func TestReport127StubbornObjectsOfDeletedTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.change = quiet
		n := r.start()
		var topics []control.Topic
		for i := range 2 {
			topic := n.create(fmt.Sprint("t", i), 1, "file.delete.delay.ms", "0")
			topics = append(topics, topic)
			for range 3 * giveUpAfter {
				n.fill(topic.Name, 0, 1)
			}
		}
		stubborn := map[string]bool{}
		keys := r.bucket.Keys(remote.TopicPrefix(topics[0].ID))
		for _, key := range keys[:4*giveUpAfter] { // both objects of each segment
			stubborn[key] = true
			r.bucket.Add(memory.Fault{Ops: memory.OpDelete, Key: key, Sticky: true, Err: remote.ErrDenied})
		}
		for _, topic := range topics {
			if err := n.DeleteTopic(t.Context(), topic.ID); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		for _, key := range r.bucket.Keys("topics/") {
			if !stubborn[key] {
				t.Errorf("%s is held up", key)
			}
		}
		if doomed, _ := r.store.Doomed(t.Context(), 1<<20); len(doomed) != 2*giveUpAfter {
			t.Errorf("%d rows are left, want %d", len(doomed), 2*giveUpAfter)
		}
		r.bucket.Clear()
		time.Sleep(time.Hour)
		synctest.Wait()
		if left := r.bucket.Keys("topics/"); len(left) > 0 {
			t.Errorf("they can go now and stay: %s", strings.Join(left, " "))
		}
		n.end()
	})
}
