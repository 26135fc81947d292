package client

import (
	"context"
	"net/http"
	"time"
)

// Cost is what a node has asked of its bucket since it started, and what that
// costs by its price table.
type Cost struct {
	Since   time.Time `json:"since"` // when the node began to count
	Seconds float64   `json:"seconds"`
	Prices  Prices    `json:"prices"`
	// Topics are those that there are, the dearest month first.
	Topics  []CostLine `json:"topics"`
	Cluster CostLine   `json:"cluster"`        // what belongs to no topic: claim, control plane, self-test
	Deleted CostLine   `json:"deleted_topics"` // topics that are gone, together
	Total   CostLine   `json:"total"`
}

// Prices is the node's price table (cost.*).
type Prices struct {
	PutPerMillion   float64 `json:"put_per_million"`
	GetPerMillion   float64 `json:"get_per_million"`
	StorageGiBMonth float64 `json:"storage_gib_month"`
	EgressGiB       float64 `json:"egress_gib"`
	Currency        string  `json:"currency"`
}

// CostLine is the requests, bytes and money of a topic. Amounts are in the
// currency of the price table.
type CostLine struct {
	Topic     string `json:"topic"` // empty but for topics
	ID        string `json:"id"`
	Writes    int64  `json:"writes"` // requests of class A: PUT, POST, LIST
	Reads     int64  `json:"reads"`  // of class B: GET, HEAD
	Deletes   int64  `json:"deletes"`
	Refused   int64  `json:"refused"` // answered with 429 or 5xx, of any class
	BytesUp   int64  `json:"bytes_up"`
	BytesDown int64  `json:"bytes_down"`

	StoredBytes int64 `json:"stored_bytes"` // that the rows know of, now

	Requests float64 `json:"requests_cost"` // since the start
	Egress   float64 `json:"egress_cost"`   // since the start
	Storage  float64 `json:"storage_cost_30d"`
	// What a day and 30 days cost if requests and reads go on as they did since the
	// start and storage stays as it is. Null while the node is up for less than a
	// minute: a guess, not a bill.
	Projected24h *float64 `json:"projected_24h"`
	Projected30d *float64 `json:"projected_30d"`
}

// Cost asks what the bucket costs.
func (c *Client) Cost(ctx context.Context) (out Cost, err error) {
	return out, c.do(ctx, http.MethodGet, "/v1/cost", nil, &out)
}

// Limits are the limits of traffic with the bucket, what they hold back, and the
// jobs of partitions.
type Limits struct {
	Upload        int64  `json:"upload_bytes_per_second"` // 0: no limit, as for those below
	Download      int64  `json:"download_bytes_per_second"`
	WriteRequests int64  `json:"write_requests_per_second"`
	ReadRequests  int64  `json:"read_requests_per_second"`
	Lanes         []Lane `json:"lanes"`
	Jobs          []Jobs `json:"jobs"`
}

// Lane is the requests of one kind that are under way. The window halves when the
// store asks to slow down and grows again with its answers.
type Lane struct {
	Name         string  `json:"name"` // writes, reads or deletes
	Places       int     `json:"places"`
	Window       int     `json:"window"`
	InFlight     int     `json:"in_flight"`
	Waiting      int     `json:"waiting"`
	SlowDowns    int64   `json:"slow_downs"`
	PauseSeconds float64 `json:"pause_seconds"` // until the next request, because the store asked for it
}

// Jobs is the jobs of one kind.
type Jobs struct {
	Kind    string `json:"kind"` // copy, remove or rows
	Running int    `json:"running"`
	Waiting int    `json:"waiting"`
}

// LimitChanges asks for other limits until the node stops. What is nil stays.
type LimitChanges struct {
	Upload        *int64 `json:"upload_bytes_per_second,omitempty"`
	Download      *int64 `json:"download_bytes_per_second,omitempty"`
	WriteRequests *int64 `json:"write_requests_per_second,omitempty"`
	ReadRequests  *int64 `json:"read_requests_per_second,omitempty"`
}

// Limits asks for the limits that hold now.
func (c *Client) Limits(ctx context.Context) (out Limits, err error) {
	return out, c.do(ctx, http.MethodGet, "/v1/limits", nil, &out)
}

// ChangeLimits changes limits at once, for what is under way too.
func (c *Client) ChangeLimits(ctx context.Context, changes LimitChanges) (out Limits, err error) {
	return out, c.do(ctx, http.MethodPatch, "/v1/limits", changes, &out)
}
