package admin

// GET and PATCH /v1/limits: what the bucket is asked for at most. A change holds
// until the node stops; the configuration holds from the next start on.

import (
	"net/http"

	"github.com/strandline-io/strandline/gateway/admin/client"
	"github.com/strandline-io/strandline/tiers"
)

func (s *Server) getLimits(w http.ResponseWriter, _ *http.Request) error {
	if s.o.Gate == nil {
		return noBucket()
	}
	return writeJSON(w, http.StatusOK, s.limits())
}

func (s *Server) limits() client.Limits {
	l := s.o.Gate.Limits()
	out := client.Limits{
		Upload: l.UploadBytes, Download: l.DownloadBytes, WriteRequests: l.WriteRequests, ReadRequests: l.ReadRequests,
		Lanes: []client.Lane{}, Jobs: []client.Jobs{},
	}
	for _, lane := range s.o.Gate.Lanes() {
		out.Lanes = append(out.Lanes, client.Lane{
			Name: lane.Name, Places: lane.Most, Window: lane.Window, InFlight: lane.InFlight, Waiting: lane.Waiting,
			SlowDowns: lane.SlowDowns, PauseSeconds: lane.Pause.Seconds(),
		})
	}
	if s.o.Pool != nil {
		for _, j := range s.o.Pool.Jobs() {
			out.Jobs = append(out.Jobs, client.Jobs(j))
		}
	}
	return out
}

// leastByteRate is the smallest limit of bytes: below it a segment takes days.
const leastByteRate = 1 << 10

func (s *Server) patchLimits(w http.ResponseWriter, r *http.Request) error {
	if s.o.Gate == nil {
		return noBucket()
	}
	var in client.LimitChanges
	if err := readJSON(r, &in, false); err != nil {
		return err
	}
	l := s.o.Gate.Limits()
	for _, change := range []struct {
		name  string
		want  *int64
		field *int64
		least int64
	}{
		{"upload_bytes_per_second", in.Upload, &l.UploadBytes, leastByteRate},
		{"download_bytes_per_second", in.Download, &l.DownloadBytes, leastByteRate},
		{"write_requests_per_second", in.WriteRequests, &l.WriteRequests, 1},
		{"read_requests_per_second", in.ReadRequests, &l.ReadRequests, 1},
	} {
		if change.want == nil {
			continue
		}
		if *change.want != 0 && *change.want < change.least {
			return tiers.E(tiers.InvalidRequest, "change limits", change.name, "%d: give 0 for no limit, or at least %d", *change.want, change.least)
		}
		*change.field = *change.want
	}
	s.o.Gate.SetLimits(l)
	s.o.Log.Info("the limits of traffic with the bucket were changed until the next start", "upload_bytes_per_second", l.UploadBytes,
		"download_bytes_per_second", l.DownloadBytes, "write_requests_per_second", l.WriteRequests, "read_requests_per_second", l.ReadRequests)
	return writeJSON(w, http.StatusOK, s.limits())
}
