package s3wire_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/s3wire"
)

const lifecycleXML = `<?xml version="1.0" encoding="UTF-8"?>
<LifecycleConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
  <Rule><ID>whole</ID><Status>Enabled</Status><Filter><Prefix></Prefix></Filter><Expiration><Days>30</Days></Expiration></Rule>
  <Rule><ID>old form</ID><Status>Disabled</Status><Prefix>p/</Prefix><Expiration><Date>2026-01-01T00:00:00Z</Date></Expiration></Rule>
  <Rule><ID>both</ID><Status>Enabled</Status><Filter><And><Prefix>p/topics/</Prefix><Tag><Key>k</Key><Value>v</Value></Tag></And></Filter>
    <Transition><Days>1</Days><StorageClass>GLACIER</StorageClass></Transition></Rule>
  <Rule><ID>clean</ID><Status>Enabled</Status><Filter><Prefix>p/</Prefix></Filter>
    <NoncurrentVersionExpiration><NoncurrentDays>3</NoncurrentDays></NoncurrentVersionExpiration>
    <AbortIncompleteMultipartUpload><DaysAfterInitiation>2</DaysAfterInitiation></AbortIncompleteMultipartUpload></Rule>
</LifecycleConfiguration>`

// Both drivers read the same of a bucket's settings.
func TestSettings(t *testing.T) {
	t.Parallel()
	want := []remote.LifecycleRule{
		{ID: "whole", Enabled: true, Expires: true, ExpireDays: 30},
		{ID: "old form", Prefix: "p/", Expires: true},
		{ID: "both", Enabled: true, Prefix: "p/topics/", Filtered: true, Moves: []string{"GLACIER"}},
		{ID: "clean", Enabled: true, Prefix: "p/", OldVersions: true, AbortAfter: 48 * time.Hour},
	}
	for driver := range drivers {
		s, err := settingsOf(t, driver, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/xml")
			if r.URL.Query().Has("versioning") {
				fmt.Fprint(w, `<VersioningConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Status>Suspended</Status></VersioningConfiguration>`)
				return
			}
			fmt.Fprint(w, lifecycleXML)
		})
		if err != nil || s.Prefix != "p/" || s.Versioning != "Suspended" || len(s.Unread) > 0 {
			t.Errorf("%s: %+v, %v", driver, s, err)
		}
		if !slices.EqualFunc(s.Rules, want, func(a, b remote.LifecycleRule) bool { return fmt.Sprint(a) == fmt.Sprint(b) }) {
			t.Errorf("%s: %+v", driver, s.Rules)
		}
	}
}

// What may not be read is told, and the other part is read all the same. A
// bucket without rules is none that cannot be read.
func TestSettingsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for driver := range drivers {
		s, err := settingsOf(t, driver, func(w http.ResponseWriter, r *http.Request) {
			code, status := "NoSuchLifecycleConfiguration", http.StatusNotFound
			if r.URL.Query().Has("versioning") {
				code, status = "AccessDenied", http.StatusForbidden
			}
			w.Header().Set("Content-Type", "application/xml")
			w.WriteHeader(status)
			fmt.Fprintf(w, `<Error><Code>%s</Code><Message>no</Message></Error>`, code)
		})
		if err != nil || len(s.Unread) != 1 || !errors.Is(s.Unread["versioning"], remote.ErrDenied) || len(s.Rules) != 0 {
			t.Errorf("%s: %+v, %v", driver, s, err)
		}
	}
}

// A store that does not know the question, as versitygw does not, has no rules.
func TestSettingsThatTheStoreDoesNotHave(t *testing.T) {
	t.Parallel()
	for driver := range drivers {
		s, err := settingsOf(t, driver, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/xml")
			w.WriteHeader(http.StatusNotImplemented)
			fmt.Fprint(w, `<Error><Code>NotImplemented</Code><Message>no</Message></Error>`)
		})
		if why := s.Unread["lifecycle"]; err != nil || !errors.Is(why, errors.ErrUnsupported) || strings.Contains(why.Error(), "checksum") {
			t.Errorf("%s: %+v, %v", driver, s, err)
		}
	}
}

// The real server is asked without an error of the call itself.
func TestSettingsOfTheRealStore(t *testing.T) {
	t.Parallel()
	each(t, func(t on) {
		b, ok := open(t, t.driver, t.bucket).(remote.SettingsReader)
		if !ok {
			t.Fatal("the driver cannot tell the settings")
		}
		s, err := b.Settings(t.Context())
		if err != nil || s.Prefix != "p/" || s.Versioning == "Enabled" || len(s.Rules) > 0 {
			t.Errorf("%+v, %v", s, err)
		}
	})
}

func settingsOf(t *testing.T, driver string, answer http.HandlerFunc) (remote.Settings, error) {
	t.Helper()
	srv := httptest.NewServer(answer)
	t.Cleanup(srv.Close)
	b, err := drivers[driver](t.Context(), s3wire.Config{
		Bucket: "bucket", Prefix: "p", Endpoint: srv.URL, Credentials: s3wire.Credentials{AccessKey: "a", SecretKey: "s"},
	}.WithDefaults())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b.(remote.SettingsReader).Settings(t.Context())
}

func TestConcerns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rule, ours string
		want       bool
	}{{"", "", true}, {"", "p/", true}, {"p/", "", true}, {"p", "p/", true}, {"p/topics/", "p/", true}, {"q/", "p/", false}, {"p/", "pp/", false}} {
		if got := (remote.LifecycleRule{Enabled: true, Prefix: c.rule}).Concerns(c.ours); got != c.want {
			t.Errorf("a rule for %q concerns %q: %t", c.rule, c.ours, got)
		}
		if (remote.LifecycleRule{Prefix: c.rule}).Concerns(c.ours) {
			t.Errorf("a rule that is off concerns %q", c.ours)
		}
	}
}
