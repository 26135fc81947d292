package bucketfaults

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/strandline-io/strandline/testenv/faultproxy"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/partition"
)

// TestBucketThatCannotBeUsedIsLoudAtTheStart: each of the usual mistakes says what
// it is and what to do, with both drivers.
func TestBucketThatCannotBeUsedIsLoudAtTheStart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(s *site)
		kind  tiers.Kind
		words []string
	}{
		"no such bucket": {func(s *site) {
			s.config.Bucket = strings.Replace(s.config.Bucket, s.bucket.Name, "strandline-no-such-bucket", 1)
		}, tiers.InvalidConfig, []string{"does not exist", "create it"}},
		"wrong secret": {func(s *site) { s.config.S3.SecretKey = "wrong" + s.config.S3.SecretKey }, tiers.InvalidConfig, []string{"keys are refused"}},
		"unknown key":  {func(s *site) { s.config.S3.AccessKey = "nobody" }, tiers.InvalidConfig, []string{"keys are refused"}},
		"wrong region": {func(s *site) {
			s.config.Bucket = strings.Replace(s.config.Bucket, "region=us-east-1", "region=eu-west-9", 1)
		}, tiers.InvalidConfig, []string{"made for the wrong region"}},
		"https for http":    {func(s *site) { s.setEndpoint("https://" + strings.TrimPrefix(s.proxy.URL, "http://")) }, tiers.RemoteUnavailable, []string{"scheme"}},
		"nobody listens":    {func(s *site) { s.setEndpoint("http://127.0.0.1:1") }, tiers.RemoteUnavailable, []string{"cannot be reached", "endpoint"}},
		"may only read":     {func(s *site) { s.deny(http.MethodPut) }, tiers.InvalidConfig, []string{"keys are refused", "put"}},
		"may not delete":    {func(s *site) { s.deny(http.MethodDelete); s.denyBatch() }, tiers.InvalidConfig, []string{"keys are refused", "delete"}},
		"may not list":      {func(s *site) { s.proxy.Add(denied("", "list-type=2")) }, tiers.InvalidConfig, []string{"keys are refused", "list"}},
		"asks to slow down": {func(s *site) { s.proxy.Add(faultproxy.Rule{Action: faultproxy.Status, Times: -1}) }, tiers.RemoteUnavailable, []string{"slow down"}},
	} {
		for _, driver := range drivers() {
			t.Run(driver+"/"+name, func(t *testing.T) {
				t.Parallel()
				s := newSite(t, driver)
				c.spoil(s)
				began := time.Now()
				n, err := s.start()
				if n != nil {
					s.down(n)
					t.Fatal("it started")
				}
				if tiers.KindOf(err) != c.kind || time.Since(began) > time.Minute {
					t.Errorf("after %s: %v", time.Since(began), err)
				}
				for _, w := range c.words {
					if !strings.Contains(err.Error(), w) {
						t.Errorf("%v\ndoes not say %q", err, w)
					}
				}
			})
		}
	}
}

func (s *site) setEndpoint(endpoint string) {
	u, err := url.Parse(s.config.Bucket)
	if err != nil {
		s.t.Fatal(err)
	}
	q := u.Query()
	q.Set("endpoint", endpoint)
	u.RawQuery = q.Encode()
	s.config.Bucket = u.String()
}

func denied(method, query string) faultproxy.Rule {
	return faultproxy.Rule{Method: method, Query: query, Action: faultproxy.Status, Status: 403, Code: "AccessDenied", Times: -1}
}

func (s *site) deny(method string) { s.proxy.Add(denied(method, "")) }
func (s *site) denyBatch()         { s.proxy.Add(denied(http.MethodPost, "delete")) }

// TestBucketThatGoesAwayIsVisible: the node goes on with what is local, says why
// the bucket does not answer, and forgets about it once it does.
func TestBucketThatGoesAwayIsVisible(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rule   faultproxy.Rule
		reason string
	}{
		"deleted": {faultproxy.Rule{Action: faultproxy.Status, Status: 404, Code: "NoSuchBucket", Times: -1}, "no-bucket"},
		"revoked": {denied("", ""), "denied"},
		"away":    {faultproxy.Rule{Action: faultproxy.Reset, Times: -1}, "unavailable"},
	} {
		for _, driver := range drivers() {
			t.Run(driver+"/"+name, func(t *testing.T) {
				t.Parallel()
				s := newSite(t, driver)
				n := s.up()
				s.fill(n)
				s.insist("copy", s.owner(n).CopyAll)
				s.proxy.Add(c.rule)
				s.eventually("health tells", func() bool { return n.Broker().Health().BucketReason() == c.reason })
				ready, err := admin(n).Ready(t.Context())
				if err != nil || ready.Status != "ok" || !strings.Contains(strings.Join(ready.Warnings, "\n"), "bucket") {
					t.Errorf("%+v, %v", ready, err)
				}
				if cluster, err := admin(n).Cluster(t.Context()); err != nil || cluster.BucketDown == "" {
					t.Errorf("%+v, %v", cluster, err)
				}
				if got := s.metric(n, "strandline_bucket_up"); got != `{reason="`+c.reason+`"} 0` {
					t.Errorf("bucket_up%s", got)
				}
				o := s.owner(n)
				if _, err := o.Read(t.Context(), partition.ReadRequest{From: 0, CurrentEpoch: tiers.NoEpoch, FetchedEpoch: tiers.NoEpoch, MaxBytes: 1 << 20}); err != nil {
					t.Errorf("a local read: %v", err)
				}
				s.proxy.Clear()
				s.eventually("it comes back by itself", func() bool { return s.metric(n, "strandline_bucket_up") == `{reason=""} 1` })
				if n.Broker().Fenced() != nil {
					t.Error("a bucket that was away fenced the node")
				}
				s.read(n)
			})
		}
	}
}

// metric returns the first sample of a metric, without its name.
func (s *site) metric(n interface{ AdminAddr() string }, name string) string {
	s.t.Helper()
	resp, err := http.Get("http://" + n.AdminAddr() + "/metrics")
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	for line := range lines(resp.Body) {
		if rest, ok := strings.CutPrefix(line, name); ok && (strings.HasPrefix(rest, "{") || strings.HasPrefix(rest, " ")) {
			return rest
		}
	}
	return ""
}
