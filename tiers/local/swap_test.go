package local

import (
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys/mem"
)

// TestSwappedFolders: the folder of another partition of the same topic is
// refused; a file that does not tell the partition, as Kafka's, is completed.
func TestSwappedFolders(t *testing.T) {
	fs := mem.New()
	must(t, fs.MkdirAll("/p", dirPerm))
	o := Options{FS: fs, Dir: "/p", ID: tiers.PartitionID{Topic: topicA, Index: 0}, Gen: 1, Log: hclog.NewNullLogger()}
	must(t, claimDir(o))
	must(t, claimDir(o))
	other := o
	other.ID.Index = 1
	if err := claimDir(other); tiers.KindOf(err) != tiers.InconsistentTopicID {
		t.Fatal("the folder of partition 0 was taken for partition 1:", err)
	}
	m, err := decodeMetadata([]byte("version: 0\ntopic_id: " + topicA.String() + "\nhistory_gen: 1\n"))
	if err != nil || m.index != -1 {
		t.Fatal(m, err)
	}
}
