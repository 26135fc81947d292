package bucketfaults

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/strandline-io/strandline/testenv/faultproxy"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/remote"
)

type rules []faultproxy.Rule

// storm is what may happen to any request.
func storm(method, key string) map[string]rules {
	on := func(r faultproxy.Rule) rules {
		r.Method, r.Key = method, key
		return rules{r}
	}
	return map[string]rules{
		"latency":          on(faultproxy.Rule{Action: faultproxy.Delay, Latency: 300 * time.Millisecond, Times: 4}),
		"503 SlowDown":     on(faultproxy.Rule{Action: faultproxy.Status, Times: 7}),
		"500":              on(faultproxy.Rule{Action: faultproxy.Status, Status: 500, Code: "InternalError", Times: 7}),
		"429":              on(faultproxy.Rule{Action: faultproxy.Status, Status: 429, Times: 7}),
		"403 for a while":  on(faultproxy.Rule{Action: faultproxy.Status, Status: 403, Code: "AccessDenied", Times: 3}),
		"reset":            on(faultproxy.Rule{Action: faultproxy.Reset, Times: 7}),
		"hang":             on(faultproxy.Rule{Action: faultproxy.Hang}),
		"answer lost":      on(faultproxy.Rule{Action: faultproxy.DropAfter, Times: 3}),
		"503 after commit": on(faultproxy.Rule{Action: faultproxy.StatusAfter, Times: 3}),
	}
}

// each runs a test for each fault and driver.
func each(t *testing.T, faults map[string]rules, run func(s *site, faults rules)) {
	t.Helper()
	t.Parallel()
	for _, driver := range drivers() {
		for name, f := range faults {
			t.Run(driver+"/"+name, func(t *testing.T) {
				t.Parallel()
				run(newSite(t, driver), f)
			})
		}
	}
}

func (s *site) hurt(rs rules) {
	for _, r := range rs {
		s.proxy.Add(r)
	}
}

// struck fails a test whose fault never came: it would show nothing.
func (s *site) struck() {
	s.t.Helper()
	if s.proxy.Hits() == 0 {
		s.t.Error("the fault did not strike")
	}
}

// TestReport126CopyUnderFaults: each PUT may fail in every way. In the end there
// is one complete copy of each segment, nothing else, and the records are right.
func TestReport126CopyUnderFaults(t *testing.T) {
	faults := storm(http.MethodPut, "/topics/")
	faults["body cut"] = rules{{Method: http.MethodPut, Key: "/topics/", Action: faultproxy.CutRequest, Times: 3}}
	faults["body stalls"] = rules{{Method: http.MethodPut, Key: ".log", Action: faultproxy.StallRequest}}
	faults["bit flip"] = rules{{Method: http.MethodPut, Key: ".log", Action: faultproxy.FlipRequest, Times: 2}}
	faults["bit flip in a companion"] = rules{{Method: http.MethodPut, Key: ".meta", Action: faultproxy.FlipRequest}}
	faults["slow"] = rules{{Method: http.MethodPut, Key: ".log", Action: faultproxy.Bandwidth, Rate: 256 << 10, Times: 2}}
	faults["clean-up fails too"] = rules{
		{Method: http.MethodPut, Key: ".meta", Action: faultproxy.Status, Status: 403, Code: "AccessDenied", Times: 2},
		{Method: http.MethodDelete, Action: faultproxy.Status, Status: 500, Times: 7},
		{Method: http.MethodPost, Query: "delete", Action: faultproxy.Status, Status: 500, Times: 7},
	}
	each(t, faults, func(s *site, f rules) {
		n := s.up()
		s.hurt(f)
		s.fill(n)
		s.insist("copy", s.owner(n).CopyAll)
		s.struck()
		s.proxy.Clear()
		s.read(n)
		segments := 0
		s.eventually("two objects for each segment and no more", func() bool {
			infos, err := s.owner(n).Segments(s.t.Context())
			if err != nil {
				s.t.Fatal(err)
			}
			segments = 0
			for _, seg := range infos {
				if seg.Tier != "local" {
					segments++
				}
			}
			return len(s.keys("topics/")) == 2*segments
		})
		if segments < 3 {
			s.t.Errorf("%d segments", segments)
		}
		s.loseDisk(n)
		s.read(s.up())
	})
}

// TestColdReadUnderFaults: what is in the bucket only is opened and read through
// every fault of a read, and no wrong byte comes out.
func TestColdReadUnderFaults(t *testing.T) {
	faults := storm(http.MethodGet, "/topics/")
	delete(faults, "answer lost")      // of a read: a reset
	delete(faults, "503 after commit") // of a read: a 503
	for name, key := range map[string]string{"": ".log", " of a companion": ".meta"} {
		faults["body cut"+name] = rules{{Method: http.MethodGet, Key: key, Action: faultproxy.Truncate, Times: 3}}
		faults["bit flip"+name] = rules{{Method: http.MethodGet, Key: key, Action: faultproxy.FlipBit, Times: 2}}
	}
	faults["body stalls"] = rules{{Method: http.MethodGet, Key: ".log", Action: faultproxy.Stall}}
	faults["slow"] = rules{{Method: http.MethodGet, Key: ".log", Action: faultproxy.Bandwidth, Rate: 512 << 10, Times: 2}}
	each(t, faults, func(s *site, f rules) {
		n := s.up()
		s.fill(n)
		s.insist("copy", s.owner(n).CopyAll)
		s.loseDisk(n)
		s.hurt(f)
		n = s.up()
		s.read(n)
		s.struck()
		s.proxy.Clear()
		s.read(n)
	})
}

// TestReport127TopicDeletionUnderFaults: a deletion that fails is tried until the
// objects are gone, through a restart, and nobody else's object goes.
func TestReport127TopicDeletionUnderFaults(t *testing.T) {
	faults := map[string]rules{}
	for name, f := range storm("", "") {
		for _, r := range f {
			del, post := r, r
			del.Method, del.Key = http.MethodDelete, "/topics/"
			post.Method, post.Query = http.MethodPost, "delete"
			faults[name] = append(faults[name], del, post)
		}
	}
	each(t, faults, func(s *site, f rules) {
		n := s.up()
		s.fill(n)
		s.insist("copy", s.owner(n).CopyAll)
		topic, _ := n.Broker().Catalog().Topic(topicName)
		s.hurt(f)
		s.insist("delete topic", func(ctx context.Context) error { return n.Broker().DeleteTopic(ctx, topic.ID) })
		s.eventually("the fault strikes", func() bool { return s.proxy.Hits() > 0 })
		s.down(n)
		s.proxy.Clear() // the self-test of a start deletes, too
		n = s.up()
		s.eventually("its objects are gone", func() bool { return len(s.keys("topics/")) == 0 })
		if len(s.keys("cluster/")) == 0 {
			s.t.Error("the claim is gone")
		}
		if n.Broker().Fenced() != nil {
			s.t.Error(n.Broker().Fenced())
		}
	})
}

// TestReport127RetentionUnderFaults: what retention deletes is refused by the store
// for as long as it likes, through a restart. Nobody reads it, it does not count for
// retention.bytes, so no pass takes more, and within two passes after the store is
// sound all of it is gone, and nothing else.
func TestReport127RetentionUnderFaults(t *testing.T) {
	faults := map[string]rules{}
	for name, status := range map[string]int{"500": 500, "403": 403} {
		code := map[int]string{500: "InternalError", 403: "AccessDenied"}[status]
		faults[name] = rules{
			{Method: http.MethodDelete, Key: "/topics/", Action: faultproxy.Status, Status: status, Code: code, Times: -1},
			{Method: http.MethodPost, Query: "delete", Action: faultproxy.Status, Status: status, Code: code, Times: -1},
		}
	}
	each(t, faults, func(s *site, f rules) {
		n := s.up()
		atStart := s.posts() // of the self-test, which a start wants to go well
		s.fill(n)
		s.insist("copy", s.owner(n).CopyAll)
		const strange = "topics/of-somebody-else"
		if _, err := s.past().Put(s.t.Context(), strange, remote.BytesBody([]byte("x")), remote.PutOptions{}); err != nil {
			s.t.Fatal(err)
		}
		all := s.keys("topics/") // two of each segment, by offset, and the strange one
		segments, err := admin(n).Segments(s.t.Context(), topicName, 0)
		if err != nil || len(segments) != 5 || len(all) != 9 {
			s.t.Fatalf("%d segments, %d objects, %v", len(segments), len(all), err)
		}
		limit, start := fmt.Sprint(segments[2].Bytes+segments[3].Bytes), segments[2].Base
		s.hurt(f)
		if err := admin(n).AlterConfigs(s.t.Context(), topicName, map[string]*string{"retention.bytes": &limit, "file.delete.delay.ms": new("0")}); err != nil {
			s.t.Fatal(err)
		}
		refused := func() {
			s.t.Helper()
			ctx, cancel := context.WithTimeout(s.t.Context(), 8*time.Second)
			defer cancel()
			if err := admin(n).Retain(ctx, topicName, 0, true); err == nil {
				s.t.Error("a pass went well although its deletes were refused")
			}
			s.struck()
			topic, err := admin(n).Topic(s.t.Context(), topicName)
			if err != nil {
				s.t.Fatal(err)
			}
			if p := topic.Detail[0]; p.LogStart != start || p.LocalLogStart != start {
				s.t.Errorf("want a start of %d: %+v", start, p)
			}
			if got := s.keys("topics/"); !slices.Equal(got, all) {
				s.t.Errorf("%d objects, there were %d", len(got), len(all))
			}
		}
		refused()
		refused()
		s.down(n)
		s.proxy.Clear()
		f = slices.Clone(f)
		f[1].Nth = atStart + 1
		s.hurt(f)
		n = s.up()
		refused()
		s.proxy.Clear()
		for range 2 {
			_ = admin(n).Retain(s.t.Context(), topicName, 0, true)
		}
		if got := s.keys("topics/"); !slices.Equal(got, all[4:]) {
			s.t.Errorf("two passes later these are there: %v", got)
		}
		s.readFrom(n, tiers.Offset(start))
		if n.Broker().Fenced() != nil {
			s.t.Error(n.Broker().Fenced())
		}
	})
}

// posts counts the requests so far that delete several keys.
func (s *site) posts() (n int) {
	for _, r := range s.proxy.Seen() {
		if r.Method == http.MethodPost && strings.HasPrefix(r.Query, "delete") {
			n++
		}
	}
	return n
}

// TestAKeyThatAListingHides stays: the sweep only takes what it sees and no row
// names.
func TestAKeyThatAListingHides(t *testing.T) {
	each(t, map[string]rules{"key missing": {{Query: "list-type=2", Action: faultproxy.ListDropKey, Times: -1}}}, func(s *site, f rules) {
		n := s.up()
		s.fill(n)
		s.insist("copy", s.owner(n).CopyAll)
		s.hurt(f)
		if rep, err := admin(n).Sweep(s.t.Context(), false, true); err != nil || rep.Deleted != 0 {
			s.t.Errorf("%+v, %v", rep, err)
		}
		s.proxy.Clear()
		s.loseDisk(n)
		s.read(s.up())
	})
}

// TestReport008ConditionsThatAreIgnored: a store that never sees If-Match and
// If-None-Match is refused at the start, by name.
func TestReport008ConditionsThatAreIgnored(t *testing.T) {
	each(t, map[string]rules{"If-* stripped": {{Method: http.MethodPut, Action: faultproxy.Strip, Headers: []string{"If-"}, Times: -1}}}, func(s *site, f rules) {
		s.hurt(f)
		n, err := s.start()
		if n != nil {
			s.down(n)
		}
		if tiers.KindOf(err) != tiers.InvalidConfig || !strings.Contains(err.Error(), "conditional writes are not obeyed") {
			s.t.Errorf("%v", err)
		}
		s.struck()
	})
}

// TestStoreThatTellsNoChecksums is refused at the start, by name.
func TestStoreThatTellsNoChecksums(t *testing.T) {
	each(t, map[string]rules{"checksums stripped": {{Action: faultproxy.StripAnswer, Headers: []string{"X-Amz-Checksum"}, Times: -1}}}, func(s *site, f rules) {
		s.hurt(f)
		n, err := s.start()
		if n != nil {
			s.down(n)
		}
		if tiers.KindOf(err) != tiers.InvalidConfig || !strings.Contains(err.Error(), "CRC-32C that came with an object is not kept") {
			s.t.Errorf("%v", err)
		}
		s.struck()
	})
}
