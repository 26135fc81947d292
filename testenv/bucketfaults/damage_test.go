package bucketfaults

import (
	"net/http"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/strandline-io/strandline/gateway"
	"github.com/strandline-io/strandline/testenv/faultproxy"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys/mem"
)

// TestRebuildUnderOneFlip: one bit of one answer flips on its way, once, and nothing
// in the bucket is damaged. The rebuild has every record that was copied, and the
// log start that was answered, all the same (report 025).
func TestRebuildUnderOneFlip(t *testing.T) {
	for name, key := range map[string]string{"companion": ".meta", "snapshot": "/cluster/snapshot", "change": "/cluster/change"} {
		for _, driver := range drivers() {
			t.Run(driver+"/"+name, func(t *testing.T) {
				s := newSite(t, driver)
				n := s.up()
				s.fill(n)
				s.insist("copy", s.owner(n).CopyAll)
				s.down(n)
				n = s.up()
				if _, err := s.owner(n).DeleteRecords(t.Context(), 3); err != nil {
					t.Fatal(err)
				}
				// The machine is lost: the change is in the bucket, no snapshot has it.
				s.proxy.Add(faultproxy.Rule{Method: http.MethodPut, Key: "/cluster/snapshot", Action: faultproxy.Status, Status: 500, Times: -1})
				s.down(n)
				s.proxy.Clear()
				s.proxy.Add(faultproxy.Rule{Method: http.MethodGet, Key: key, Action: faultproxy.FlipBit})
				s.fs = mem.New()
				rep, err := gateway.Rebuild(t.Context(), s.config, gateway.RebuildDeps{FS: s.fs, Log: hclog.NewNullLogger()})
				s.struck()
				s.proxy.Clear()
				if err != nil || !rep.Whole() {
					t.Fatalf("whole %v, %v", rep.Whole(), err)
				}
				n = s.up()
				if v := s.owner(n).View(); v.LogStart != 3 || v.LogEnd != tiers.Offset(records) {
					t.Errorf("rebuilt: %+v", v.Watermarks)
				}
			})
		}
	}
}

// TestCutListing: a listing that breaks off is asked for again, by a sweep, a start
// and a rebuild.
func TestCutListing(t *testing.T) {
	for _, driver := range drivers() {
		t.Run(driver, func(t *testing.T) {
			s := newSite(t, driver)
			n := s.up()
			s.fill(n)
			s.insist("copy", s.owner(n).CopyAll)
			cut := func() {
				s.proxy.Add(faultproxy.Rule{Query: "list-type=2", Action: faultproxy.Truncate})
			}
			cut()
			if rep, err := admin(n).Sweep(t.Context(), false, true); err != nil || rep.Error != "" {
				t.Errorf("sweep: %+v, %v", rep, err)
			}
			s.struck()
			s.proxy.Clear()
			s.down(n)
			cut()
			n, err := s.start()
			if err != nil {
				t.Fatal(err)
			}
			s.struck()
			s.proxy.Clear()
			s.down(n)
			cut()
			s.fs = mem.New()
			if rep, err := gateway.Rebuild(t.Context(), s.config, gateway.RebuildDeps{FS: s.fs, Log: hclog.NewNullLogger()}); err != nil || !rep.Whole() {
				t.Errorf("rebuild: whole %v, %v", rep.Whole(), err)
			}
			s.struck()
		})
	}
}
