package gateway

// The price table, and settings of its kind.

import (
	"fmt"
	"math"
	"strconv"

	"github.com/strandline-io/strandline/tiers/remote"
)

// defaultPrices is a list price that was public once (AWS, us-east-1, without
// egress). It is an example to be replaced, not a promise.
func defaultPrices() remote.Prices {
	return remote.Prices{WritesPerMillion: 5, ReadsPerMillion: 0.4, StorageGiBMonth: 0.023, EgressGiB: 0, Currency: "USD"}
}

func (c *Config) costSettings() []setting {
	p := &c.Prices
	return []setting{
		amount("cost.put_per_million", &p.WritesPerMillion, "Price of a million requests of class A (PUT, POST, LIST), for /v1/cost. The defaults are a public list of AWS us-east-1: put in what your store charges."),
		amount("cost.get_per_million", &p.ReadsPerMillion, "Price of a million requests of class B (GET, HEAD). Deletions cost nothing."),
		amount("cost.storage_gib_month", &p.StorageGiBMonth, "Price of a GiB that is kept for 30 days."),
		amount("cost.egress_gib", &p.EgressGiB, "Price of a GiB that is read from the bucket. 0 where the node is next to it."),
		text("cost.currency", &p.Currency, "Word that is printed beside amounts."),
	}
}

// amount is a number of units of money.
func amount(key string, v *float64, doc string) setting {
	return setting{
		key: key, kind: "number, at least 0", doc: doc,
		set: func(s string) error {
			n, err := strconv.ParseFloat(s, 64)
			if err != nil || n < 0 || math.IsInf(n, 0) || math.IsNaN(n) {
				return fmt.Errorf("%q is not an amount: write it like 0.4 or 5", s)
			}
			*v = n
			return nil
		},
		get: func() string { return strconv.FormatFloat(*v, 'f', -1, 64) },
	}
}

// rate is a number of bytes per second, 0 for no limit. Below leastRate a segment
// would take days.
func rate(key string, v *int64, doc string) setting {
	const leastRate = 1 << 10
	s := size(key, v, 0, doc)
	s.kind = "bytes per second, at least " + FormatBytes(leastRate) + ", or 0"
	s.set = func(given string) error {
		n, err := ParseBytes(given)
		if err != nil {
			return err
		}
		if n > 0 && n < leastRate {
			return fmt.Errorf("%q is less than %s per second: give more, or 0 for no limit", given, FormatBytes(leastRate))
		}
		*v = n
		return nil
	}
	return s
}
