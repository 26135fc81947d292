package bench

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Report is what a run measured. It marshals to JSON; members that a benchmark
// does not measure are left out.
type Report struct {
	Bench       string `json:"bench"`
	Brokers     string `json:"brokers"`
	Topic       string `json:"topic"`
	Partitions  int    `json:"partitions"`
	RecordSize  int64  `json:"record_bytes,omitempty"`
	Acks        string `json:"acks,omitempty"`
	Compression string `json:"compression,omitempty"`
	Clients     int    `json:"clients"`
	Idempotent  bool   `json:"idempotent,omitempty"`
	Sync        bool   `json:"sync,omitempty"`

	Records          int64   `json:"records"`
	Bytes            int64   `json:"bytes"` // of keys and values
	Seconds          float64 `json:"seconds"`
	RecordsPerSecond float64 `json:"records_per_s"`
	MiBPerSecond     float64 `json:"mib_per_s"`
	TargetRate       float64 `json:"target_records_per_s,omitempty"`

	// Latency is of an acknowledgement (produce) or of a fetch (consume, cold).
	Latency   *Latency `json:"latency,omitempty"`
	FirstByte float64  `json:"first_byte_ms,omitempty"` // from asking to the first record

	Client ClientCost    `json:"client"`
	Server *ServerCost   `json:"server,omitempty"`
	Verify *Verification `json:"verify,omitempty"`
	Cold   *ColdReport   `json:"cold,omitempty"`

	Interrupted bool     `json:"interrupted,omitempty"`
	Notes       []string `json:"notes,omitempty"`
}

func (r *Report) note(text string) {
	r.Notes = append(r.Notes, text)
}

// WriteTo prints the report for people.
func (r *Report) WriteTo(w io.Writer) (int64, error) {
	var b strings.Builder
	r.head(&b)
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tw, "records\t%d\t%.0f/s\n", r.Records, r.RecordsPerSecond)
	fmt.Fprintf(tw, "bytes\t%.1f MiB\t%.1f MiB/s\n", float64(r.Bytes)/mebibyte, r.MiBPerSecond)
	fmt.Fprintf(tw, "time\t%.2f s\n", r.Seconds)
	if l := r.Latency; l != nil {
		fmt.Fprintf(tw, "%s\tp50 %.2f ms\tp99 %.2f ms\tp99.9 %.2f ms\tmax %.2f ms\tmean %.2f ms\n", r.latencyOf(), l.P50, l.P99, l.P999, l.Max, l.Mean)
	}
	if r.FirstByte > 0 {
		fmt.Fprintf(tw, "first record\tafter %.1f ms\n", r.FirstByte)
	}
	fmt.Fprintf(tw, "client\t%.2f CPU s\t%.2f CPU s/GiB\t%.2f allocations/record\t%.0f B allocated/record\n",
		r.Client.CPUSeconds, r.Client.CPUPerGiB, r.Client.AllocsPerRecord, r.Client.AllocdPerRecord)
	if s := r.Server; s != nil {
		fmt.Fprintf(tw, "server\t%.2f CPU s\t%.2f CPU s/GiB\t%.0f MiB resident\t%d open files\n",
			s.CPUSeconds, s.CPUPerGiB, float64(s.RSSBytes)/mebibyte, s.OpenFiles)
	}
	if c := r.Cold; c != nil {
		c.write(tw)
	}
	if err := tw.Flush(); err != nil {
		return 0, err
	}
	r.tail(&b)
	n, err := io.WriteString(w, b.String())
	return int64(n), err
}

func (r *Report) head(b *strings.Builder) {
	fmt.Fprintf(b, "%s %s on %s: %d partitions, %d clients", r.Bench, r.Topic, r.Brokers, r.Partitions, r.Clients)
	if r.RecordSize > 0 {
		fmt.Fprintf(b, ", records of %d B, acks=%s, compression %s", r.RecordSize, r.Acks, r.Compression)
	}
	if r.Idempotent {
		b.WriteString(", idempotent")
	}
	if r.Sync {
		b.WriteString(", one record at a time")
	}
	if r.TargetRate > 0 {
		fmt.Fprintf(b, ", %.0f records/s asked for", r.TargetRate)
	}
	b.WriteString("\n")
}

// latencyOf says what the latency is of.
func (r *Report) latencyOf() string {
	switch {
	case r.Bench != "produce":
		return "fetches"
	case r.TargetRate > 0:
		return "acknowledged, from the time it was due"
	}
	return "acknowledged"
}

func (r *Report) tail(b *strings.Builder) {
	if v := r.Verify; v != nil {
		fmt.Fprintf(b, "verified %d records of %d producers: %d damaged, %d doubled, %d reordered, %d missing, %d foreign\n",
			v.Records, v.Producers, v.Damaged, v.Doubled, v.Reordered, v.Missing, v.Foreign)
		for _, p := range v.Problems {
			fmt.Fprintf(b, "problem: %s\n", p)
		}
	}
	if r.Bench == "produce" && r.Records > 0 && r.Acks != "0" {
		fmt.Fprintf(b, "to verify: strandline bench consume --topic %s --verify --expect %d (more if the topic has records of earlier runs)\n", r.Topic, r.Records)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(b, "note: %s\n", n)
	}
	if r.Interrupted {
		b.WriteString("interrupted: this is what was measured until then\n")
	}
}
