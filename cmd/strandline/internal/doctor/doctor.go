// Package doctor examines what a node stands on: its configuration, this machine's
// clock, limits and disk, and the bucket. Each check says what it found and, where
// something is wrong, what to do.
//
// It owns nothing for longer than a run and changes nothing: it takes neither the
// lock of the data directory nor the claim of the bucket, so it may run next to a
// node and before the first start. The files and objects that it tries things
// with have names of their own and are removed, also after an interrupt.
//
// Measuring and judging are apart: what measures returns numbers, a pure function
// makes a Check of them.
package doctor

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/strandline-io/strandline/gateway"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/remote"
)

// Status is what came of a check.
type Status string

// What can come of a check.
const (
	OK      Status = "ok"
	Warn    Status = "warn" // a node runs, and may do worse than it could
	Failed  Status = "fail" // a node does not start, or loses something
	Skipped Status = "skip" // it could not be looked at
)

// Check is one thing that was looked at.
type Check struct {
	Name   string             `json:"name"`
	Status Status             `json:"status"`
	Found  string             `json:"found"`
	Advice string             `json:"advice,omitempty"` // what to do
	Values map[string]float64 `json:"values,omitempty"` // what was measured, units in the names
}

func ok(name, format string, args ...any) Check {
	return Check{Name: name, Status: OK, Found: fmt.Sprintf(format, args...)}
}

func skip(name, format string, args ...any) Check {
	return Check{Name: name, Status: Skipped, Found: fmt.Sprintf(format, args...)}
}

// warn makes c one that a node can live with.
func (c Check) warn(advice string, args ...any) Check {
	c.Status, c.Advice = Warn, fmt.Sprintf(advice, args...)
	return c
}

// fail makes c one that has to be dealt with.
func (c Check) fail(advice string, args ...any) Check {
	c.Status, c.Advice = Failed, fmt.Sprintf(advice, args...)
	return c
}

// Report is what came of all checks. It marshals to JSON.
type Report struct {
	Status      Status  `json:"status"` // the worst of the checks
	Running     bool    `json:"running"`
	Checks      []Check `json:"checks"`
	Interrupted bool    `json:"interrupted,omitempty"`
}

// Count is how many checks have the status.
func (r *Report) Count(s Status) int {
	n := 0
	for _, c := range r.Checks {
		if c.Status == s {
			n++
		}
	}
	return n
}

// WriteTo prints the report for people.
func (r *Report) WriteTo(w io.Writer) (int64, error) {
	var b strings.Builder
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, c := range r.Checks {
		fmt.Fprintf(tw, "%s\t%s\t%s\n", c.Status, c.Name, strings.ReplaceAll(c.Found, "\n", "; "))
		for line := range strings.SplitSeq(c.Advice, "\n") {
			if line != "" {
				fmt.Fprintf(tw, "\t\t-> %s\n", line)
			}
		}
	}
	if err := tw.Flush(); err != nil {
		return 0, err
	}
	if r.Interrupted {
		b.WriteString("interrupted: the rest was not looked at\n")
	}
	fmt.Fprintf(&b, "%d ok, %d warnings, %d failures, %d not looked at\n", r.Count(OK), r.Count(Warn), r.Count(Failed), r.Count(Skipped))
	n, err := io.WriteString(w, b.String())
	return int64(n), err
}

// Options are what is examined, and with what.
type Options struct {
	Loaded *gateway.Loaded
	FS     fsys.FS          // nil: the machine's
	Bucket remote.Bucket    // nil: what the configuration names
	Now    func() time.Time // nil: time.Now
	Syncs  int              // writes of each size whose fsync is measured; 0: 200
}

// exam is one run. Its fields belong to the goroutine of Run.
type exam struct {
	c         gateway.Config
	l         *gateway.Loaded
	fs        fsys.FS
	now       func() time.Time
	given     remote.Bucket
	syncsEach int
	bucket    remote.Bucket // once it is open
	running   holder        // who has the lock of the data directory
	report    Report
}

// Run makes all checks, or those that it gets to before ctx ends.
func Run(ctx context.Context, o Options) Report {
	e := &exam{c: o.Loaded.Config, l: o.Loaded, fs: o.FS, now: o.Now, given: o.Bucket, syncsEach: cmp.Or(o.Syncs, syncCount)}
	if e.fs == nil {
		e.fs = fsys.OS{}
	}
	if e.now == nil {
		e.now = time.Now
	}
	began := e.now()
	e.report = Report{Status: OK, Checks: []Check{}}
	for _, group := range []func(context.Context) []Check{
		e.configuration, e.machine, e.dataDir, e.listeners, e.bucketChecks,
		func(context.Context) []Check {
			ended := e.now()
			return []Check{judgeClock(ended, ended.Sub(began), ended.Round(0).Sub(began.Round(0)), !unsynchronized())}
		},
	} {
		if ctx.Err() != nil {
			e.report.Interrupted = true
			break
		}
		e.report.Checks = append(e.report.Checks, group(ctx)...)
	}
	for _, s := range []Status{Warn, Failed} {
		if e.report.Count(s) > 0 {
			e.report.Status = s
		}
	}
	e.report.Running = e.running.held
	return e.report
}

// configuration checks what a start would check.
func (e *exam) configuration(context.Context) []Check {
	c := ok("config", "a node would accept it")
	if err := e.l.Validate(); err != nil {
		c.Found = err.Error()
		return []Check{c.fail("change what is named; `strandline config print` shows where each value comes from")}
	}
	if w := e.l.Warnings; len(w) > 0 {
		c.Found = strings.Join(w, "\n")
		return []Check{c.warn("remove it, or correct its name: a node passes it over")}
	}
	return []Check{c}
}
