package s3wire_test

import (
	"fmt"
	"testing"

	"github.com/strandline-io/strandline/testenv/s3srv"
)

var benchSizes = []int{256 << 10, 1 << 20, 16 << 20, 64 << 20}

func benchName(driver string, size int) string {
	return fmt.Sprintf("driver=%s/size=%dKiB", driver, size>>10)
}

func BenchmarkPut(b *testing.B) {
	srv := s3srv.Start(b)
	for driver := range drivers {
		for _, size := range benchSizes {
			b.Run(benchName(driver, size), func(b *testing.B) {
				bucket, body := open(b, driver, srv.Bucket(b)), noise(1, size)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					mustPut(b, bucket, fmt.Sprint("k", i%4), body)
				}
			})
		}
	}
}

func BenchmarkReadAt(b *testing.B) {
	srv := s3srv.Start(b)
	for driver := range drivers {
		for _, size := range benchSizes {
			b.Run(benchName(driver, size), func(b *testing.B) {
				bucket, body := open(b, driver, srv.Bucket(b)), noise(1, size)
				mustPut(b, bucket, "k", body)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := bucket.ReadAt(b.Context(), "k", body, 0); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkReadAtParallel is what tiered reads do: ranges of 256 KiB of one big
// object, many at once.
func BenchmarkReadAtParallel(b *testing.B) {
	const size, chunk = 64 << 20, 256 << 10
	srv := s3srv.Start(b)
	for driver := range drivers {
		b.Run("driver="+driver, func(b *testing.B) {
			bucket := open(b, driver, srv.Bucket(b))
			mustPut(b, bucket, "k", noise(1, size))
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
