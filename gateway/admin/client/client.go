// Package client talks to a node's admin interface: the command line uses it,
// and so can any Go program. The types are the interface's JSON, shared with the
// server.
//
// A Client holds no state but its http.Client; it may be used by many goroutines
// at once.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// maxAnswer bounds what is read of an answer, in bytes.
const maxAnswer = 256 << 20

// Client talks to one node.
type Client struct {
	base string
	http *http.Client
}

// New returns a client of the node whose admin interface is at address:
// HOST:PORT or a URL. A nil h is http.DefaultClient; its timeout bounds the
// calls that wait for copies too, so leave that to the contexts.
func New(address string, h *http.Client) *Client {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	if h == nil {
		h = http.DefaultClient
	}
	return &Client{base: strings.TrimSuffix(address, "/"), http: h}
}

// Ready asks whether the node serves. A node that does not is no error.
func (c *Client) Ready(ctx context.Context) (Health, error) {
	var h Health
	err := c.do(ctx, http.MethodGet, "/readyz", nil, &h)
	var p *Problem
	if errors.As(err, &p) && p.Status == http.StatusServiceUnavailable && h.Status != "" {
		return h, nil
	}
	return h, err
}

// Cluster asks who the node is.
func (c *Client) Cluster(ctx context.Context) (out Cluster, err error) {
	return out, c.do(ctx, http.MethodGet, "/v1/cluster", nil, &out)
}

// Config asks for the node's configuration.
func (c *Client) Config(ctx context.Context) ([]ConfigKey, error) {
	var out NodeConfig
	err := c.do(ctx, http.MethodGet, "/v1/config", nil, &out)
	return out.Config, err
}

// Topics lists all topics by name.
func (c *Client) Topics(ctx context.Context) ([]Topic, error) {
	var out Topics
	err := c.do(ctx, http.MethodGet, "/v1/topics", nil, &out)
	return out.Topics, err
}

// Topic describes a topic.
func (c *Client) Topic(ctx context.Context, name string) (out TopicDetail, err error) {
	return out, c.do(ctx, http.MethodGet, topicPath(name), nil, &out)
}

// CreateTopic makes a topic.
func (c *Client) CreateTopic(ctx context.Context, t NewTopic) (out Topic, err error) {
	return out, c.do(ctx, http.MethodPost, "/v1/topics", t, &out)
}

// DeleteTopic removes a topic in both tiers.
func (c *Client) DeleteTopic(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodDelete, topicPath(name), nil, nil)
}

// Configs lists the settings of a topic.
func (c *Client) Configs(ctx context.Context, topic string) ([]ConfigEntry, error) {
	var out Configs
	err := c.do(ctx, http.MethodGet, topicPath(topic)+"/configs", nil, &out)
	return out.Configs, err
}

// AlterConfigs sets settings of a topic; a nil value drops one, so that its
// default holds again.
func (c *Client) AlterConfigs(ctx context.Context, topic string, changes map[string]*string) error {
	return c.do(ctx, http.MethodPatch, topicPath(topic)+"/configs", changes, nil)
}

// Segments lists the segments of a partition in both tiers.
func (c *Client) Segments(ctx context.Context, topic string, partition int32) ([]Segment, error) {
	var out Segments
	err := c.do(ctx, http.MethodGet, partitionPath(topic, partition)+"/segments", nil, &out)
	return out.Segments, err
}

// Roll closes the active segment of a partition, if it holds records.
func (c *Client) Roll(ctx context.Context, topic string, partition int32) error {
	return c.do(ctx, http.MethodPost, partitionPath(topic, partition)+"/roll", Wait{Wait: true}, nil)
}

// Copy has the closed segments of a partition copied to the bucket; with wait it
// returns once they are there.
func (c *Client) Copy(ctx context.Context, topic string, partition int32, wait bool) error {
	return c.do(ctx, http.MethodPost, partitionPath(topic, partition)+"/copy", Wait{Wait: wait}, nil)
}

func topicPath(name string) string { return "/v1/topics/" + url.PathEscape(name) }

func partitionPath(topic string, p int32) string {
	return topicPath(topic) + "/partitions/" + strconv.Itoa(int(p))
}

// do sends a request and decodes the answer into out, if that is not nil. An
// answer that is not a success is a *Problem; out is filled in all the same if
// it fits.
func (c *Client) do(ctx context.Context, method, path string, in, out any) (err error) {
	req, err := c.request(ctx, method, path, in)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("admin interface of the node: %w (is it running, and is the address right?)", err)
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if resp.StatusCode/100 == 2 {
		if out == nil || len(raw) == 0 {
			return nil
		}
		if err := json.Unmarshal(raw, out); err != nil {
			return fmt.Errorf("%s %s: %w (is %s the admin address of a node?)", method, path, err, c.base)
		}
		return nil
	}
	if out != nil {
		_ = json.Unmarshal(raw, out) // /readyz says why it is not ready; a problem leaves out empty.
	}
	p := &Problem{Status: resp.StatusCode, Title: resp.Status}
	if err := json.Unmarshal(raw, p); err != nil {
		p.Detail = fmt.Sprintf("%s %s: %s", method, path, resp.Status)
	}
	p.Status = resp.StatusCode
	return p
}

func (c *Client) request(ctx context.Context, method, path string, in any) (*http.Request, error) {
	var body io.Reader
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", method, path, err)
		}
		body = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, fmt.Errorf("admin interface of the node: %w", err)
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, nil
}
