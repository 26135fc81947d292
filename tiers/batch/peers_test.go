package batch

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What franz-go sends for each codec passes Check and decodes to what was
// produced. The batches are taken from the wire, between the client and a broker.
func TestFranzGoBatches(t *testing.T) {
	for c, codec := range map[Codec]kgo.CompressionCodec{
		None: kgo.NoCompression(), Gzip: kgo.GzipCompression(), Snappy: kgo.SnappyCompression(), LZ4: kgo.Lz4Compression(), Zstd: kgo.ZstdCompression(),
	} {
		t.Run(c.String(), func(t *testing.T) {
			sent := produced(t, codec, 40)
			var n int
			for _, b := range sent {
				h, err := Check(b, Limits{MaxBytes: 1 << 20})
				if err != nil {
					t.Fatal(err)
				}
				if h.Codec() != c {
					t.Fatalf("codec %s", h.Codec())
				}
				for _, r := range records(t, NewDecoder(1<<20), b) {
					want := fmt.Sprintf("key-%d value-%d %s", n, n, strings.Repeat("x", 300))
					if got := string(r.Key) + " " + string(r.Value); got != want {
						t.Fatalf("record %d: %q", n, got)
					}
					if r.Timestamp != 1_600_000_000_000+int64(n) || len(r.Headers) != 1 || r.Headers[0].Key != "n" {
						t.Fatalf("record %d: %+v", n, r)
					}
					n++
				}
			}
			if n != 40 {
				t.Fatalf("%d records", n)
			}
		})
	}
}

func produced(t *testing.T, codec kgo.CompressionCodec, n int) [][]byte {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	var sent [][]byte
	cluster.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		for _, topic := range req.(*kmsg.ProduceRequest).Topics {
			for _, p := range topic.Partitions {
				sent = append(sent, append([]byte(nil), p.Records...))
			}
		}
		return nil, nil, false
	})
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.DefaultProduceTopic("t"), kgo.ProducerBatchCompression(codec))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	recs := make([]*kgo.Record, n)
	for i := range recs {
		recs[i] = &kgo.Record{
			Key: fmt.Appendf(nil, "key-%d", i), Value: fmt.Appendf(nil, "value-%d %s", i, strings.Repeat("x", 300)),
			Timestamp: time.UnixMilli(1_600_000_000_000 + int64(i)), Headers: []kgo.RecordHeader{{Key: "n", Value: []byte{byte(i)}}},
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := client.ProduceSync(ctx, recs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	return sent
}
