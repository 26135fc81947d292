package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// Latest is the position of the high watermark.
const Latest Position = -1

// Position is an offset or Latest. Its JSON is a number or "latest".
type Position int64

// MarshalJSON implements json.Marshaler.
func (p Position) MarshalJSON() ([]byte, error) {
	if p == Latest {
		return []byte(`"latest"`), nil
	}
	return json.Marshal(int64(p))
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *Position) UnmarshalJSON(b []byte) error {
	if string(b) == `"latest"` {
		*p = Latest
		return nil
	}
	var n int64
	if err := json.Unmarshal(b, &n); err != nil || n < 0 {
		return fmt.Errorf(`%s is neither an offset nor "latest"`, b)
	}
	*p = Position(n)
	return nil
}

// Instant is a time in milliseconds since 1970. Its JSON is that number or a text
// of RFC 3339.
type Instant int64

// UnmarshalJSON implements json.Unmarshaler.
func (i *Instant) UnmarshalJSON(b []byte) error {
	var n int64
	if err := json.Unmarshal(b, &n); err == nil && n >= 0 {
		*i = Instant(n)
		return nil
	}
	var at time.Time
	if err := json.Unmarshal(b, &at); err != nil || at.UnixMilli() < 0 {
		return fmt.Errorf("%s is neither a time of RFC 3339 nor milliseconds since 1970", b)
	}
	*i = Instant(at.UnixMilli())
	return nil
}

// Trim deletes records from the start of a partition on, or says what that would
// delete.
func (c *Client) Trim(ctx context.Context, topic string, partition int32, t Trim) (out Trimmed, err error) {
	return out, c.do(ctx, http.MethodPost, partitionPath(topic, partition)+"/trim", t, &out)
}

// Retain runs a retention pass of a partition now; with wait it returns once what
// was due is gone.
func (c *Client) Retain(ctx context.Context, topic string, partition int32, wait bool) error {
	return c.do(ctx, http.MethodPost, partitionPath(topic, partition)+"/retain", Wait{Wait: wait}, nil)
}

// Explain is Segments with the sums of a partition.
func (c *Client) Explain(ctx context.Context, topic string, partition int32) (out Segments, err error) {
	return out, c.do(ctx, http.MethodGet, partitionPath(topic, partition)+"/segments", nil, &out)
}

// CheckConfigs says whether AlterConfigs would take the changes, and what they
// would delete.
func (c *Client) CheckConfigs(ctx context.Context, topic string, changes map[string]*string) ([]Effect, error) {
	var out ConfigCheck
	err := c.do(ctx, http.MethodPatch, topicPath(topic)+"/configs?check_only=true", changes, &out)
	return out.Effects, err
}
