package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/strandline-io/strandline/gateway"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/remote"
)

// minAbort is the age from which a store may drop unfinished uploads: a large
// segment on a slow line takes its time, and a node drops its own after a day.
const minAbort = 48 * time.Hour

// standing says whether a start would get the bucket. The claim is only read.
func (e *exam) standing(ctx context.Context) Check {
	if e.c.DataDir == "" {
		return skip("bucket.claim", "data_dir is not set")
	}
	s, err := gateway.Stand(ctx, e.fs, e.c, e.bucket)
	switch {
	case tiers.KindOf(err) == tiers.CorruptMessage, tiers.KindOf(err) == tiers.StorageFailed:
		return ok("bucket.claim", "%v", err).fail("a node refuses to start like this; the message says what to do")
	case err != nil:
		return unreachable("bucket.claim", e.bucket.String(), err)
	}
	return judgeStanding(s, e.c.DataDir, e.running.held)
}

func judgeStanding(s gateway.Standing, dataDir string, running bool) Check {
	c := ok("bucket.claim", "no cluster has used this bucket")
	if s.Claim == nil {
		if s.Used {
			return c.warn("this data directory was started with a bucket before, and this one holds nothing of it: check bucket")
		}
		return c
	}
	held := "was released"
	if !s.Claim.Released {
		held = "is held"
	}
	c.Found = fmt.Sprintf("the claim of cluster %s %s (node %d, generation %d, since %s)",
		s.Claim.Cluster, held, s.Claim.Node, s.Claim.Generation, s.Claim.At.UTC().Format(time.RFC3339))
	switch {
	case s.Known && running:
		c.Found += ", by the node that runs on this data directory"
	case s.Known:
		c.Found += ", by this data directory"
	case s.New:
		return c.fail("the data directory is empty and the bucket holds a cluster: run `strandline rebuild --bucket URL --data %s` to bring it back, or choose another prefix for a new cluster", dataDir)
	default:
		return c.fail("another data directory used the bucket since: serve that one, or `strandline rebuild` into an empty one; `strandline serve --take-over` insists on this one and gives up what the other wrote")
	}
	return c
}

// settings reads how the bucket's owner has set it up, where that may be read.
func (e *exam) settings(ctx context.Context) Check {
	r, known := e.bucket.(remote.SettingsReader)
	if !known {
		return skip("bucket.settings", "%v", errors.ErrUnsupported)
	}
	s, err := r.Settings(ctx)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return skip("bucket.settings", "this kind of bucket has none")
	case err != nil:
		return skip("bucket.settings", "%v", err)
	}
	return judgeSettings(s)
}

func judgeSettings(s remote.Settings) Check {
	c := ok("bucket.settings", "")
	var found, advice []string
	status := OK
	say := func(st Status, what, todo string) {
		found, advice = append(found, what), append(advice, todo)
		if status != Failed {
			status = st
		}
	}
	cleaned := false
	for _, r := range s.Rules {
		if !r.Concerns(s.Prefix) {
			continue
		}
		cleaned = cleaned || r.OldVersions && !r.Filtered
		if r.Expires {
			say(Failed, fmt.Sprintf("lifecycle rule %q deletes objects of this prefix", r.ID),
				"limit the rule to other prefixes: it deletes segments that partitions still hold; retention.ms and retention.bytes of topics are what deletes them")
		}
		if i := slices.IndexFunc(r.Moves, archives); i >= 0 {
			say(Failed, fmt.Sprintf("lifecycle rule %q moves objects of this prefix to %s", r.ID, r.Moves[i]),
				"limit the rule to other prefixes: objects of that class cannot be read before they are restored")
		}
		if r.AbortAfter > 0 && r.AbortAfter < minAbort {
			say(Warn, fmt.Sprintf("lifecycle rule %q drops unfinished uploads after %s", r.ID, r.AbortAfter),
				"give uploads two days or more")
		}
	}
	if s.Versioning == "Enabled" && !cleaned && s.Unread["lifecycle"] == nil {
		say(Warn, "versions are kept and no rule deletes old ones", "add a lifecycle rule that deletes versions which are not current: what a node deletes is kept, and paid for, until then")
	}
	for _, part := range []string{"versioning", "lifecycle"} {
		switch err := s.Unread[part]; {
		case err == nil:
		case errors.Is(err, errors.ErrUnsupported):
			found = append(found, "the store has no "+part+" settings: not supported")
		default:
			found = append(found, part+" cannot be read: "+short(err))
		}
	}
	if len(s.Unread) == 2 && status == OK {
		return skip(c.Name, "%s", strings.Join(found, "; "))
	}
	if c.Status = status; len(found) == 0 {
		found = []string{fmt.Sprintf("versioning %s, %d lifecycle rules, none of which gets in the way", orNone(s.Versioning), len(s.Rules))}
	}
	c.Found, c.Advice = strings.Join(found, "; "), strings.Join(advice, "\n")
	return c
}

// archives reports whether objects of a storage class must be restored before
// they can be read.
func archives(class string) bool { return class == "GLACIER" || class == "DEEP_ARCHIVE" }

func orNone(s string) string {
	if s == "" {
		return "off"
	}
	return strings.ToLower(s)
}

// short is why something could not be read, in a few words.
func short(err error) string {
	if errors.Is(err, remote.ErrDenied) {
		return "the keys may not"
	}
	return err.Error()
}
