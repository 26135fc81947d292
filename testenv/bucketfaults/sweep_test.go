package bucketfaults

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/strandline-io/strandline/gateway"
	"github.com/strandline-io/strandline/testenv/faultproxy"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/remote"
)

// TestReport104ListingsThatLie: there is something to sweep, old and named by nobody.
// While the store's listing has no end, all of them or that of the partition only, the
// sweep stops with an error that names the store, soon, and deletes nothing, not even
// what it saw. Once the store is sound exactly that goes.
func TestReport104ListingsThatLie(t *testing.T) {
	const old = 48 * time.Hour
	for where, of := range map[string]func(prefix string) string{
		"every listing":           func(string) string { return "list-type=2" },
		"the partition's listing": func(prefix string) string { return "prefix=" + prefix },
	} {
		t.Run(where, func(t *testing.T) {
			each(t, map[string]rules{
				"no token":   {{Action: faultproxy.ListNoToken, Age: old, Times: -1}},
				"same token": {{Action: faultproxy.ListSameToken, Age: old, Times: -1}},
			}, func(s *site, f rules) {
				n := s.up()
				s.fill(n)
				s.insist("copy", s.owner(n).CopyAll)
				named := s.keys("topics/")
				prefix, orphans := s.orphans(n, 3)
				before := s.keys("")
				f = slices.Clone(f)
				f[0].Query = of("p/" + prefix)
				s.hurt(f)
				s.proxy.Add(faultproxy.Rule{Query: "list-type=2", Action: faultproxy.ListOld, Age: old, Times: -1})
				began := time.Now()
				rep, err := admin(n).Sweep(s.t.Context(), false, true)
				if err != nil || !strings.Contains(rep.Error, "s3://") || rep.Deleted != 0 || time.Since(began) > 30*time.Second {
					s.t.Errorf("%+v, %v after %s", rep, err, time.Since(began))
				}
				s.struck()
				deletes := s.proxy.Count()[faultproxy.Delete]
				s.proxy.Clear()
				if after := s.keys(""); !slices.Equal(after, before) {
					s.t.Errorf("%d objects, there were %d; %d deletes", len(after), len(before), deletes)
				}
				if rep, err := admin(n).Sweep(s.t.Context(), false, true); err != nil || rep.Error != "" || rep.Deleted != 0 || rep.Young != int64(len(orphans)) {
					s.t.Errorf("healed, and nothing is old enough: %+v, %v", rep, err)
				}
				s.proxy.Add(faultproxy.Rule{Query: "list-type=2", Action: faultproxy.ListOld, Age: old, Times: -1})
				if rep, err := admin(n).Sweep(s.t.Context(), false, true); err != nil || rep.Error != "" || rep.Deleted != int64(len(orphans)) {
					s.t.Errorf("healed: %+v, %v", rep, err)
				}
				if after := s.keys("topics/"); !slices.Equal(after, named) {
					s.t.Errorf("%d objects of segments, want %d", len(after), len(named))
				}
				s.read(n)
			})
		})
	}
}

// orphans puts objects that no row names below the partition's prefix.
func (s *site) orphans(n *gateway.Node, count int) (prefix string, keys []string) {
	s.t.Helper()
	topic, _ := n.Broker().Catalog().Topic(topicName)
	id := tiers.PartitionID{Topic: topic.ID}
	b := s.past()
	for i := range count {
		seg := tiers.RemoteSegment{ID: tiers.SegmentID{0xff, byte(i)}, Partition: id, Gen: 1, Base: tiers.Offset(i)}
		keys = append(keys, remote.SegmentKey(seg))
		if _, err := b.Put(s.t.Context(), remote.SegmentKey(seg), remote.BytesBody([]byte("of nobody")), remote.PutOptions{}); err != nil {
			s.t.Fatal(err)
		}
	}
	return remote.PartitionPrefix(id), keys
}
