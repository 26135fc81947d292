package remote

// Prices is a price table. The figures are whole units of Currency.
type Prices struct {
	WritesPerMillion float64 // requests of class A
	ReadsPerMillion  float64 // requests of class B
	StorageGiBMonth  float64 // a GiB that is kept for 30 days
	EgressGiB        float64 // a GiB that is read
	Currency         string
}

const gib = 1 << 30

// OfRequests is what requests cost. Deletions and refused requests cost nothing.
func (p Prices) OfRequests(c Counts) float64 {
	return float64(c.Writes)/1e6*p.WritesPerMillion + float64(c.Reads)/1e6*p.ReadsPerMillion
}

// OfEgress is what the bytes cost that were read.
func (p Prices) OfEgress(c Counts) float64 { return float64(c.BytesDown) / gib * p.EgressGiB }

// OfStorage is what bytes cost that are kept for 30 days.
func (p Prices) OfStorage(bytes int64) float64 { return float64(bytes) / gib * p.StorageGiBMonth }
