package client

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Disk is how the disk of the data directory does.
type Disk struct {
	FreeBytes  int64  `json:"free_bytes"`
	TotalBytes int64  `json:"total_bytes"`
	FloorBytes int64  `json:"floor_bytes"` // appends are refused below it
	ReadOnly   string `json:"read_only"`   // why it takes no records now; empty: it does
	Offline    string `json:"offline"`     // why all of its partitions are offline; empty: they are not
}

// Reopen is the body of a request to reopen a partition.
type Reopen struct {
	AcceptLoss bool `json:"accept_loss"`
}

// Sweep is what a sweep of the bucket has found.
type Sweep struct {
	DryRun      bool      `json:"dry_run"`
	All         bool      `json:"all"`
	Began       time.Time `json:"began"`
	TookSeconds float64   `json:"took_seconds"`
	Partitions  int       `json:"partitions"`
	Objects     int64     `json:"objects"`
	Orphans     SweepKeys `json:"orphans"` // no row names them: deleted, unless it is a dry run
	Deleted     int64     `json:"deleted"`
	Young       int64     `json:"young"`   // not a day old
	Unknown     SweepKeys `json:"unknown"` // uploaded before this control plane kept its rows
	Foreign     SweepKeys `json:"foreign"` // not ours, never touched
	More        bool      `json:"more"`    // there are more orphans than one sweep takes
	Error       string    `json:"error"`   // why it is not complete; empty: it is
}

// SweepKeys counts objects and names the first of them.
type SweepKeys struct {
	Count int64    `json:"count"`
	Bytes int64    `json:"bytes"`
	First []string `json:"first"`
}

// Reopen opens a partition that is offline again, now. acceptLoss goes on although
// acknowledged records are gone.
func (c *Client) Reopen(ctx context.Context, topic string, partition int32, acceptLoss bool) error {
	return c.do(ctx, http.MethodPost, partitionPath(topic, partition)+"/reopen", Reopen{AcceptLoss: acceptLoss}, nil)
}

// Sweep looks for objects that no row names and deletes them, unless it is a dry
// run. all includes those from before this control plane kept the rows.
func (c *Client) Sweep(ctx context.Context, dryRun, all bool) (out Sweep, err error) {
	q := url.Values{"dry_run": {strconv.FormatBool(dryRun)}, "all": {strconv.FormatBool(all)}}
	return out, c.do(ctx, http.MethodPost, "/v1/sweep?"+q.Encode(), nil, &out)
}

// LastSweep returns the last sweep of this run of the node; ok is false if there
// was none.
func (c *Client) LastSweep(ctx context.Context) (out Sweep, ok bool, err error) {
	err = c.do(ctx, http.MethodGet, "/v1/sweep", nil, &out)
	if p, is := errors.AsType[*Problem](err); is && p.Status == http.StatusNotFound {
		return out, false, nil
	}
	return out, err == nil, err
}
