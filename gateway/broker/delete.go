package broker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
)

// A topic is deleted in this order: a note of the intent on disk, the row in the
// control plane, the bucket's journal, the owners, the folders, the note. What a
// crash cuts short is finished at the next start: a note whose topic has no row
// means that the folders go, one whose topic has a row means that nothing
// happened. Objects are deleted last, from rows that outlive the topic
// (bury.go).

// removalSuffix ends the name of the note of a deletion that is under way.
const removalSuffix = ".removing"

// retireTimeout bounds how long the copies of a deleted topic may take to end.
const retireTimeout = 30 * time.Second

// PartitionDir is the folder of a partition in a data directory. It is named by
// the topic's id, so a topic that is created again never meets old files.
func PartitionDir(dataDir string, id tiers.PartitionID) string {
	return fmt.Sprintf("%s/%s-%d", dataDir, id.Topic.Hex(), id.Index)
}

// retirements are the deleted topics whose owners or folders are still there.
type retirements struct {
	mu     sync.Mutex
	topics map[tiers.TopicID]chan struct{} // closed at the end
}

func (r *retirements) begin(id tiers.TopicID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.topics == nil {
		r.topics = map[tiers.TopicID]chan struct{}{}
	}
	r.topics[id] = make(chan struct{})
}

func (r *retirements) end(id tiers.TopicID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.topics[id])
	delete(r.topics, id)
}

// of returns what closes when the topic is gone, nil if it does not retire.
func (r *retirements) of(id tiers.TopicID) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.topics[id]
}

// DeleteTopic closes the partitions, removes the topic and its local files, and
// has its objects deleted in the background.
func (b *Broker) DeleteTopic(ctx context.Context, id tiers.TopicID) error {
	const op = "delete topic"
	if _, ok := b.Catalog().TopicByID(id); !ok {
		return tiers.E(tiers.UnknownTopicID, op, id.String(), "there is no such topic")
	}
	err := b.change(ctx, op, id.String(),
		func(c *Catalog) error {
			if _, ok := c.TopicByID(id); !ok {
				return errDone // an earlier request, or its retry, did it
			}
			return nil
		},
		func(ctx context.Context) error { return b.removeRow(ctx, id) })
	if err != nil && !errors.Is(err, errDone) {
		return err
	}
	if gone := b.retiring.of(id); gone != nil {
		select {
		case <-gone:
		case <-ctx.Done(): // it goes on in the background
		}
	}
	return nil
}

func (b *Broker) removeRow(ctx context.Context, id tiers.TopicID) error {
	if err := b.noteRemoval(id); err != nil {
		return err
	}
	_, err := b.o.Store.DeleteTopic(ctx, b.o.Session, id)
	return err
}

func (b *Broker) notePath(id tiers.TopicID) string {
	return b.o.DataDir + "/" + id.Hex() + removalSuffix
}

func (b *Broker) noteRemoval(id tiers.TopicID) error {
	f, err := b.o.FS.OpenFile(b.notePath(id), os.O_CREATE|os.O_WRONLY, 0o644)
	if err == nil {
		err = errors.Join(f.Sync(), f.Close(), b.o.FS.SyncDir(b.o.DataDir))
	}
	if err != nil {
		return tiers.E(tiers.StorageFailed, "delete topic", b.notePath(id), "nothing was deleted: %w", err)
	}
	return nil
}

// retire closes the owners of a topic that is gone, removes its folders and then
// lets its objects be deleted.
func (b *Broker) retire(e *entry) {
	b.tasks.Go(func() {
		defer b.wake(b.burials)
		defer b.retiring.end(e.topic.ID)
		ctx, cancel := context.WithTimeout(b.life, retireTimeout)
		defer cancel()
		if err := b.closeSlots(ctx, e.slots); err != nil {
			b.o.Log.Warn("deleted topic did not close cleanly", "topic", e.topic.Name, "err", err)
		}
		ids := make([]tiers.PartitionID, len(e.slots))
		for i, s := range e.slots {
			ids[i] = s.identity.ID
		}
		if err := b.removeFolders(e.topic.ID, ids); err != nil {
			b.o.Log.Error("files of a deleted topic are left, they go at the next start", "topic", e.topic.Name, "err", err)
		}
	})
}

// removeFolders removes the partitions' folders and checkpoint entries, then the
// note. It may be repeated.
func (b *Broker) removeFolders(id tiers.TopicID, ids []tiers.PartitionID) error {
	var errs []error
	for _, p := range ids {
		errs = append(errs, b.o.FS.RemoveAll(PartitionDir(b.o.DataDir, p)))
	}
	errs = append(errs, b.o.Disk.Forget(ids...))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := b.o.FS.SyncDir(b.o.DataDir); err != nil {
		return err
	}
	return b.o.FS.Remove(b.notePath(id))
}

// finishRemovals ends the deletions that an earlier run left half done, and
// reports folders that no topic claims. Those stay: whoever put them there may
// want them back.
func (b *Broker) finishRemovals(topics []control.Topic) error {
	files, err := b.o.FS.ReadDir(b.o.DataDir)
	if err != nil {
		return tiers.E(tiers.StorageFailed, "open broker", b.o.DataDir, "%w", err)
	}
	known := map[tiers.TopicID]bool{}
	for _, t := range topics {
		known[t.ID] = true
	}
	folders := map[tiers.TopicID][]tiers.PartitionID{}
	removing := map[tiers.TopicID]bool{}
	for _, f := range files {
		if id, ok := parsePartitionDir(f.Name()); ok {
			folders[id.Topic] = append(folders[id.Topic], id)
		}
		if id, err := tiers.ParseTopicID(strings.TrimSuffix(f.Name(), removalSuffix)); err == nil && strings.HasSuffix(f.Name(), removalSuffix) {
			removing[id] = true
		}
	}
	for id := range removing {
		if err := b.finishRemoval(id, known[id], folders[id]); err != nil {
			return tiers.E(tiers.StorageFailed, "open broker", b.notePath(id), "finish deleting a topic: %w", err)
		}
		delete(folders, id)
	}
	for id, ps := range folders {
		if !known[id] {
			b.o.Log.Warn("folders belong to no topic of the control plane: left alone", "topic_id", id, "folders", len(ps), "data_dir", b.o.DataDir)
		}
	}
	return nil
}

func (b *Broker) finishRemoval(id tiers.TopicID, exists bool, folders []tiers.PartitionID) error {
	if exists {
		return b.o.FS.Remove(b.notePath(id))
	}
	b.o.Log.Info("finishing the deletion of a topic", "topic_id", id, "folders", len(folders))
	return b.removeFolders(id, folders)
}

// parsePartitionDir reads a name that PartitionDir made.
func parsePartitionDir(name string) (tiers.PartitionID, bool) {
	hex, digits, ok := strings.Cut(name, "-")
	if !ok || len(hex) != 2*len(tiers.TopicID{}) {
		return tiers.PartitionID{}, false
	}
	id, err := tiers.ParseTopicID(hex)
	if err != nil {
		return tiers.PartitionID{}, false
	}
	index, err := strconv.ParseUint(digits, 10, 31)
	if err != nil || strconv.FormatUint(index, 10) != digits {
		return tiers.PartitionID{}, false
	}
	return tiers.PartitionID{Topic: id, Index: int32(index)}, true
}
