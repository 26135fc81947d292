package remote

import (
	"context"
	"strings"
	"time"
)

// SettingsReader is a Bucket that can tell how the store's owner has set it up.
// Only diagnosis asks: nothing else depends on it, and keys that may get, put,
// list and delete often may not ask.
type SettingsReader interface {
	// Settings reads what can be read. ErrDenied, or any other error of a part,
	// is in Settings.Unread; the error is of a store that cannot be asked at all.
	Settings(ctx context.Context) (Settings, error)
}

// Settings are what the owner of a bucket has set.
type Settings struct {
	Prefix     string // what the keys of this Bucket begin with, with the slash; empty: nothing
	Versioning string // Enabled, Suspended or empty
	Rules      []LifecycleRule
	Unread     map[string]error // by what could not be read: "versioning", "lifecycle"
}

// LifecycleRule is one rule of a bucket's lifecycle, as far as it matters here.
type LifecycleRule struct {
	ID          string
	Enabled     bool
	Prefix      string // of the whole keys that it applies to
	Filtered    bool   // tags or sizes narrow it further
	Expires     bool   // it deletes objects, by age or date
	ExpireDays  int    // 0 with Expires: on a date
	OldVersions bool   // it deletes versions that are not the latest
	Moves       []string
	AbortAfter  time.Duration // unfinished uploads are dropped at that age; 0: not
}

// Concerns reports whether the rule applies to some key that begins with prefix.
func (r LifecycleRule) Concerns(prefix string) bool {
	return r.Enabled && (strings.HasPrefix(prefix, r.Prefix) || strings.HasPrefix(r.Prefix, prefix))
}
