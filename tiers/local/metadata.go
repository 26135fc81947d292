package local

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys"
)

// metadata is partition.metadata: Kafka's two lines, and one of ours.
type metadata struct {
	topic tiers.TopicID
	gen   tiers.HistoryGen
	index int32 // of the partition; -1: the file does not tell, as Kafka's
}

func (m metadata) encode() []byte {
	return fmt.Appendf(nil, "version: 0\ntopic_id: %s\nhistory_gen: %d\npartition: %d\n", m.topic, m.gen, m.index)
}

func decodeMetadata(b []byte) (m metadata, err error) {
	version := ""
	m.index = -1
	for line := range strings.Lines(string(b)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch key {
		case "version":
			version = value
		case "topic_id":
			m.topic, err = tiers.ParseTopicID(value)
		case "history_gen":
			var n int64
			n, err = strconv.ParseInt(value, 10, 32)
			m.gen = tiers.HistoryGen(n)
		case "partition":
			var n int64
			n, err = strconv.ParseInt(value, 10, 32)
			m.index = int32(n)
		}
		if err != nil {
			return metadata{}, err
		}
	}
	switch {
	case version != "0":
		return metadata{}, fmt.Errorf("version %q, only 0 is known", version)
	case m.topic.IsZero() || m.gen < 1:
		return metadata{}, errors.New("topic_id or history_gen is missing")
	}
	return m, nil
}

// claimDir makes dir the folder of this partition and history, or says why it
// cannot be. A damaged file is written again: the folder is named after the
// partition too.
func claimDir(o Options) error {
	name := path.Join(o.Dir, metadataFile)
	want := metadata{o.ID.Topic, o.Gen, o.ID.Index}
	b, err := fsys.ReadFile(o.FS, name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return tiers.E(tiers.StorageFailed, "read", name, "%w", err)
	}
	if err == nil {
		have, derr := decodeMetadata(b)
		switch {
		case derr != nil:
			o.Log.Warn("partition metadata is damaged and written again", "file", name, "err", derr)
		case have == want:
			return nil
		case have.topic != want.topic:
			return tiers.E(tiers.InconsistentTopicID, "open log", o.Dir, "the folder belongs to topic id %s, not %s: move it away", have.topic, want.topic)
		case have.index >= 0 && have.index != want.index:
			return tiers.E(tiers.InconsistentTopicID, "open log", o.Dir, "the folder belongs to partition %d, not %d: folders were swapped or copied; put them back", have.index, want.index)
		case have.gen > want.gen:
			return tiers.E(tiers.StaleFence, "open log", o.Dir, "the folder is at history %d, asked for was %d", have.gen, want.gen)
		}
	}
	if err := fsys.WriteFileAtomic(o.FS, name, want.encode(), filePerm); err != nil {
		return tiers.E(tiers.StorageFailed, "write", name, "%w", err)
	}
	return nil
}
