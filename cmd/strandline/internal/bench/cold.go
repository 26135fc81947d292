package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/strandline-io/strandline/gateway/admin/client"
	"github.com/strandline-io/strandline/tiers/remote"
)

// ColdOptions say what to consume from the object store.
type ColdOptions struct {
	ConsumeOptions
	// Evict has the node close, copy and drop from its disk everything that the
	// topic holds. It needs Admin.
	Evict bool
	Yes   bool // evict a topic whatever its name
	// Bucket, if not nil, is read next to the topic: the same objects by plain
	// ranged GETs. It needs Admin, which knows the keys.
	Bucket     remote.Bucket
	RangeBytes int64 // of one GET
}

// Valid returns nil if the options make sense.
func (o *ColdOptions) Valid() error {
	switch {
	case o.Evict && o.Admin == "":
		return errors.New("--evict needs --admin: only the node can drop what it has on disk")
	case o.Bucket != nil && o.Admin == "":
		return errors.New("--bucket needs --admin: the node knows which objects are the topic's")
	case o.RangeBytes < 1:
		return errors.New("--range-bytes is at least 1")
	}
	return o.ConsumeOptions.Valid()
}

// ColdReport is what a cold run knows beyond a consumer's.
type ColdReport struct {
	RemoteOnly int64   `json:"remote_only_offsets"` // of those that were consumed
	Offsets    int64   `json:"offsets"`
	Evicted    float64 `json:"evict_s,omitempty"` // what closing, copying and dropping took
	// Objects are the bytes of the objects that were consumed, FromBucket how many
	// of them the node had to read for that: the rest was in its cache. An
	// estimate where a limit ended the run.
	Objects    int64        `json:"object_bytes,omitempty"`
	FromBucket int64        `json:"from_bucket_bytes"`
	Plain      *PlainReport `json:"plain,omitempty"`
	Ratio      float64      `json:"ratio_to_plain,omitempty"` // of MiB/s of records to MiB/s of objects; not of a run that was not cold
}

// coldParts of ten have to come from the bucket for a run to count as cold.
const coldParts = 9

// cold reports whether nearly everything came from the bucket.
func (c *ColdReport) cold() bool { return c.FromBucket*10 >= c.Objects*coldParts }

// came notes how much of what was consumed came from the bucket.
func (c *ColdReport) came(rep *Report, objects []client.Segment, limited bool) {
	for _, s := range objects {
		c.Objects += s.Bytes
	}
	if limited && rep.Records < c.Offsets {
		c.Objects = int64(float64(c.Objects) * float64(rep.Records) / float64(c.Offsets))
	}
	c.FromBucket = min(rep.Server.BucketDown, c.Objects)
	if !c.cold() {
		rep.note("this was no cold read: the node had part of it in its cache, so it is not compared with plain reads. " +
			"Restart the node, which drops the cache in memory (and, before that, empty the folder of the disk cache, if it has one), then run it again")
	}
}

// PlainReport is the same objects by ranged GETs, without Kafka and without a
// node.
type PlainReport struct {
	Requests     int64   `json:"requests"`
	Bytes        int64   `json:"bytes"`
	Seconds      float64 `json:"seconds"`
	MiBPerSecond float64 `json:"mib_per_s"`
	FirstByte    float64 `json:"first_byte_ms"` // of one GET, before the others
	RangeBytes   int64   `json:"range_bytes"`
	Streams      int     `json:"streams"`
}

func (c *ColdReport) write(w io.Writer) {
	if c.Offsets > 0 {
		fmt.Fprintf(w, "in the bucket only\t%d of %d offsets\n", c.RemoteOnly, c.Offsets)
	}
	if c.Evicted > 0 {
		fmt.Fprintf(w, "copied and dropped\tin %.2f s\n", c.Evicted)
	}
	if c.Objects > 0 {
		fmt.Fprintf(w, "from the bucket\t%.1f of %.1f MiB came from the bucket, the rest from the node's cache\n", float64(c.FromBucket)/mebibyte, float64(c.Objects)/mebibyte)
	}
	if p := c.Plain; p != nil {
		fmt.Fprintf(w, "plain GETs\t%.1f MiB\t%.1f MiB/s\tfirst bytes %.1f ms\t%d requests of %d B on %d streams\n",
			float64(p.Bytes)/mebibyte, p.MiBPerSecond, p.FirstByte, p.Requests, p.RangeBytes, p.Streams)
		if c.Ratio > 0 {
			fmt.Fprintf(w, "cold / plain\t%.2f\n", c.Ratio)
		}
	}
}

// Cold consumes what is in the object store alone.
func Cold(ctx context.Context, o ColdOptions) (rep Report, err error) {
	rep = Report{Bench: "cold", Brokers: strings.Join(o.Brokers, ","), Topic: o.Topic, Clients: o.Clients, Cold: &ColdReport{}}
	var objects []client.Segment
	if o.Admin == "" {
		rep.note("without --admin nothing says that the records came from the object store and not from local disk")
	} else if objects, err = o.prepare(ctx, rep.Cold); err != nil {
		return rep, err
	}
	cleanup := o.Cleanup
	o.Cleanup = false // the objects are read once more
	runErr := o.into(ctx, &rep)
	if rep.Server != nil {
		rep.Cold.came(&rep, objects, o.Limits != Limits{} || rep.Interrupted)
	}
	if runErr == nil && o.Bucket != nil && ctx.Err() == nil {
		if rep.Cold.Plain, err = o.plain(ctx, objects, rep.Partitions); err == nil && rep.Cold.cold() {
			rep.Cold.Ratio = over(rep.MiBPerSecond, rep.Cold.Plain.MiBPerSecond)
		}
	}
	if cleanup {
		err = errors.Join(err, o.cleanUp(ctx))
	}
	return rep, errors.Join(runErr, err)
}

func (o *ColdOptions) cleanUp(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	cl, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer cl.Close()
	_, done, err := o.topic(ctx, cl, TopicOptions{Cleanup: true}, false)
	return errors.Join(err, done(ctx))
}

// prepare makes sure that the topic is in the bucket only, and returns its
// objects.
func (o *ColdOptions) prepare(ctx context.Context, c *ColdReport) ([]client.Segment, error) {
	a := client.New(o.Admin, nil)
	if o.Evict {
		if !ownTopic(o.Topic) && !o.Yes {
			return nil, refuse("--evict drops topic %s from the node's disk, so that its consumers read from the object store; its name does not begin with %s: say --yes if that is wanted", o.Topic, TopicPrefix)
		}
		began := time.Now()
		if err := evict(ctx, a, o.Topic); err != nil {
			return nil, err
		}
		c.Evicted = time.Since(began).Seconds()
	}
	t, err := a.Topic(ctx, o.Topic)
	if err != nil {
		return nil, fmt.Errorf("topic %s: %w", o.Topic, err)
	}
	var objects []client.Segment
	for _, p := range t.Detail {
		c.RemoteOnly += max(0, p.LocalLogStart-p.LogStart)
		c.Offsets += p.HighWatermark - p.LogStart
		segments, err := a.Segments(ctx, o.Topic, p.Index)
		if err != nil {
			return nil, err
		}
		for _, s := range segments {
			if s.Tier == "remote" {
				objects = append(objects, s)
			}
		}
	}
	if c.RemoteOnly == 0 && c.Offsets > 0 {
		return nil, fmt.Errorf("every record of topic %s is on the node's disk: say --evict, or wait for local.retention to drop it", o.Topic)
	}
	return objects, nil
}

// plain reads the objects by ranged GETs, in as many streams as the topic has
// partitions. It comes after the consumer, so it has whatever the store keeps in
// memory.
func (o *ColdOptions) plain(ctx context.Context, objects []client.Segment, streams int) (*PlainReport, error) {
	if len(objects) == 0 {
		return nil, errors.New("the node names no object of the topic: there is nothing to compare with")
	}
	p := &PlainReport{RangeBytes: o.RangeBytes, Streams: streams}
	var err error
	if p.FirstByte, err = o.firstByte(ctx, objects[0]); err != nil {
		return nil, err
	}
	var requests, bytes atomic.Int64
	began := time.Now()
	g, gctx := errgroup.WithContext(ctx)
	queue := make(chan client.Segment, len(objects))
	for _, s := range objects {
		queue <- s
	}
	close(queue)
	for range streams {
		g.Go(func() error {
			buf := make([]byte, o.RangeBytes)
			for s := range queue {
				for off := int64(0); off < s.Bytes; off += o.RangeBytes {
					n := min(o.RangeBytes, s.Bytes-off)
					if _, err := o.Bucket.ReadAt(gctx, s.Key, buf[:n], off); err != nil {
						return fmt.Errorf("plain GET of %s: %w", s.Key, err)
					}
					requests.Add(1)
					bytes.Add(n)
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	p.Requests, p.Bytes, p.Seconds = requests.Load(), bytes.Load(), time.Since(began).Seconds()
	p.MiBPerSecond = over(float64(p.Bytes)/mebibyte, p.Seconds)
	return p, nil
}

// firstByte is how long the first byte of one object takes, in milliseconds, on
// a connection that is there already.
func (o *ColdOptions) firstByte(ctx context.Context, s client.Segment) (float64, error) {
	one := make([]byte, 1)
	var took time.Duration
	for range 2 { // the first one connects
		began := time.Now()
		if _, err := o.Bucket.ReadAt(ctx, s.Key, one, 0); err != nil {
			return 0, fmt.Errorf("plain GET of %s: %w", s.Key, err)
		}
		took = time.Since(began)
	}
	return float64(took.Nanoseconds()) / 1e6, nil
}
