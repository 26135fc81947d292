package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// connectTime bounds how long a server may take to answer at first, in total.
const connectTime = 10 * time.Second

// Target is the server and the topic.
type Target struct {
	Brokers []string
	Topic   string
	Admin   string // admin address of a strandline node; empty: not asked
}

// TopicOptions say what may be done with the topic.
type TopicOptions struct {
	Create     bool // make it if it is missing
	Cleanup    bool // delete it in the end, if this run made it or its name is one of a benchmark
	Yes        bool // write to an existing topic whatever its name
	Partitions int32
	Replicas   int16
	Settings   map[string]string // of a topic that is made
}

// open returns a client that has reached the server.
func (t *Target) open(ctx context.Context, opts ...kgo.Opt) (*kgo.Client, error) {
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(t.Brokers...), kgo.ClientID("strandline-bench"), kgo.MetadataMinAge(50 * time.Millisecond),
		kgo.RetryBackoffFn(func(n int) time.Duration { return min(time.Second, 20*time.Millisecond<<min(n, 6)) }),
	}, opts...)...)
	if err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	if err := cl.Ping(bounded); err != nil {
		cl.Close()
		return nil, t.explain(err)
	}
	return cl, nil
}

// explain says what to do about an error of the server or of the way to it.
func (t *Target) explain(err error) error {
	where := strings.Join(t.Brokers, ",")
	dns := (*net.DNSError)(nil)
	op := (*net.OpError)(nil)
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, ErrRefused):
		return err
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return fmt.Errorf("topic %s does not exist on %s: correct --topic, or make it, as `strandline bench produce --create` does: %w", t.Topic, where, err)
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed), errors.Is(err, kerr.SaslAuthenticationFailed):
		return fmt.Errorf("%s does not let this client do that: the benchmark connects without TLS and without a user; give it a listener that allows that: %w", where, err)
	case errors.As(err, &dns):
		return fmt.Errorf("the name of %s is not known: check --brokers: %w", where, err)
	case errors.As(err, &op) && op.Op == "dial":
		return fmt.Errorf("nothing answers at %s: start the server, or check --brokers: %w", where, err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &op) && op.Op == "read" && !op.Timeout():
		return fmt.Errorf("%s closes the connection: is it a Kafka listener without TLS and SASL? %w", where, err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%s does not answer in time: %w", where, err)
	}
	return fmt.Errorf("%s: %w", where, err)
}

// topic returns how many partitions the topic has. write says that records will
// be written to it. done undoes what was made.
func (t *Target) topic(ctx context.Context, cl *kgo.Client, o TopicOptions, write bool) (partitions int, done func(context.Context) error, err error) {
	admin := kadm.NewClient(cl)
	nothing := func(context.Context) error { return nil }
	listed, err := admin.ListTopics(ctx, t.Topic)
	if err != nil {
		return 0, nothing, t.explain(err)
	}
	detail := listed[t.Topic]
	remove := func(ctx context.Context) error {
		_, err := admin.DeleteTopic(ctx, t.Topic)
		return t.explain(err)
	}
	switch {
	case errors.Is(detail.Err, kerr.UnknownTopicOrPartition) && o.Create:
		n, err := t.create(ctx, admin, o)
		if err != nil || !o.Cleanup {
			return n, nothing, err
		}
		return n, remove, nil
	case detail.Err != nil:
		return 0, nothing, t.explain(detail.Err)
	case write && !ownTopic(t.Topic) && !o.Yes:
		return 0, nothing, refuse("topic %s exists and its name does not begin with %s: writing to it would mix records of the benchmark with others; say --yes if that is wanted", t.Topic, TopicPrefix)
	case o.Cleanup && !ownTopic(t.Topic):
		return 0, nothing, refuse("topic %s was there before: --cleanup deletes only topics that the benchmark made or whose name begins with %s", t.Topic, TopicPrefix)
	case o.Cleanup:
		return len(detail.Partitions), remove, nil
	}
	return len(detail.Partitions), nothing, nil
}

func (t *Target) create(ctx context.Context, admin *kadm.Client, o TopicOptions) (int, error) {
	configs := make(map[string]*string, len(o.Settings))
	for k, v := range o.Settings {
		configs[k] = &v
	}
	r, err := admin.CreateTopic(ctx, o.Partitions, o.Replicas, configs, t.Topic)
	if err == nil {
		err = r.Err
	}
	if err != nil {
		if r.ErrMessage != "" {
			err = fmt.Errorf("%w: %s", err, r.ErrMessage)
		}
		return 0, fmt.Errorf("create topic %s: %w", t.Topic, t.explain(err))
	}
	// A cluster answers before every node knows the topic.
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(connectTime); ; {
		listed, err := admin.ListTopics(ctx, t.Topic)
		if err != nil {
			return 0, t.explain(err)
		}
		d := listed[t.Topic]
		if d.Err == nil && len(d.Partitions) == int(o.Partitions) && led(d) {
			return len(d.Partitions), nil
		}
		if time.Now().After(deadline) {
			return 0, fmt.Errorf("topic %s was made and has no leaders after %s", t.Topic, connectTime)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// led reports whether every partition has a leader.
func led(d kadm.TopicDetail) bool {
	for _, p := range d.Partitions {
		if p.Err != nil || p.Leader < 0 {
			return false
		}
	}
	return true
}
