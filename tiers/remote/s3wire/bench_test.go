package s3wire_test

import (
	"fmt"
	"testing"

	"github.com/strandline-io/strandline/testenv/s3srv"
	"github.com/strandline-io/strandline/tiers/remote"
)

// benchEach runs f for every driver and size against the test server.
func benchEach(b *testing.B, f func(b *testing.B, bucket remote.Bucket, body []byte)) {
	srv := s3srv.Start(b)
	for driver := range drivers {
		for _, size := range []int{256 << 10, 1 << 20, 16 << 20, 64 << 20} {
			b.Run(fmt.Sprintf("driver=%s/size=%dKiB", driver, size>>10), func(b *testing.B) {
				b.SetBytes(int64(size))
				b.ReportAllocs()
				f(b, open(b, driver, srv.Bucket(b)), noise(1, size))
			})
		}
	}
}

func BenchmarkPut(b *testing.B) {
	benchEach(b, func(b *testing.B, bucket remote.Bucket, body []byte) {
		for i := 0; b.Loop(); i++ {
			if _, err := bucket.Put(b.Context(), fmt.Sprint("k", i%4), remote.BytesBody(body), remote.PutOptions{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkReadAt(b *testing.B) {
	benchEach(b, func(b *testing.B, bucket remote.Bucket, body []byte) {
		if _, err := bucket.Put(b.Context(), "k", remote.BytesBody(body), remote.PutOptions{}); err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			if _, err := bucket.ReadAt(b.Context(), "k", body, 0); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkReadAtParallel is what tiered reads do: ranges of 256 KiB of one big
// object, many at once.
func BenchmarkReadAtParallel(b *testing.B) {
	const size, chunk = 64 << 20, 256 << 10
	srv := s3srv.Start(b)
	for driver := range drivers {
		b.Run("driver="+driver, func(b *testing.B) {
			bucket := open(b, driver, srv.Bucket(b))
			if _, err := bucket.Put(b.Context(), "k", remote.BytesBody(noise(1, size)), remote.PutOptions{}); err != nil {
				b.Fatal(err)
			}
			b.SetBytes(chunk)
			b.ReportAllocs()
			b.SetParallelism(16)
			b.RunParallel(func(pb *testing.PB) {
				buf := make([]byte, chunk)
				for off := int64(0); pb.Next(); off = (off + 37*chunk) % (size - chunk) {
					if _, err := bucket.ReadAt(b.Context(), "k", buf, off); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
