package admin

import (
	"net/http"
	"strconv"

	"github.com/strandline-io/strandline/gateway/admin/client"
	"github.com/strandline-io/strandline/gateway/broker"
	"github.com/strandline-io/strandline/tiers"
)

// reopenPartition opens a partition that is offline again, while the caller waits.
func (s *Server) reopenPartition(w http.ResponseWriter, r *http.Request) error {
	t, err := s.topic(r)
	if err != nil {
		return err
	}
	index, err := strconv.ParseUint(r.PathValue("partition"), 10, 31)
	if err != nil {
		return tiers.E(tiers.InvalidRequest, "reopen partition", t.Name, "%q is not the number of a partition", r.PathValue("partition"))
	}
	var in client.Reopen
	if err := readJSON(r, &in, true); err != nil {
		return err
	}
	if err := s.o.Broker.Reopen(r.Context(), t.Name, int32(index), in.AcceptLoss); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// sweepBucket sweeps while the caller waits. One that leaves ends it.
func (s *Server) sweepBucket(w http.ResponseWriter, r *http.Request) error {
	var in broker.SweepRequest
	if r.ContentLength != 0 {
		return tiers.E(tiers.InvalidRequest, "sweep", "", "a sweep takes no body: nothing was done; write POST /v1/sweep?dry_run=true")
	}
	for name := range r.URL.Query() {
		if name != "dry_run" && name != "all" {
			return tiers.E(tiers.InvalidRequest, "sweep", "", "%q is not a parameter of a sweep, nothing was done: use dry_run and all", name)
		}
	}
	for name, set := range map[string]*bool{"dry_run": &in.DryRun, "all": &in.All} {
		v := r.URL.Query().Get(name)
		if !r.URL.Query().Has(name) {
			continue
		}
		on, err := strconv.ParseBool(v)
		if v != "" && err != nil {
			return tiers.E(tiers.InvalidRequest, "sweep", "", "%s=%q: write true or false", name, v)
		}
		*set = on || v == ""
	}
	rep, err := s.o.Broker.Sweep(r.Context(), in)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, sweepOf(rep))
}

// lastSweep tells of the last sweep of this run.
func (s *Server) lastSweep(w http.ResponseWriter, _ *http.Request) error {
	rep := s.o.Broker.Swept()
	if rep == nil {
		return problem{http.StatusNotFound, "no sweep yet", "the bucket was not swept since the node started; it is, daily and by POST /v1/sweep"}
	}
	return writeJSON(w, http.StatusOK, sweepOf(*rep))
}

func sweepOf(r broker.SweepReport) client.Sweep {
	keys := func(k broker.Keys) client.SweepKeys {
		return client.SweepKeys{Count: k.Count, Bytes: k.Bytes, First: append([]string{}, k.First...)}
	}
	return client.Sweep{
		DryRun: r.DryRun, All: r.All, Began: r.Began.UTC(), TookSeconds: r.Took.Seconds(), Partitions: r.Partitions, Objects: r.Objects,
		Orphans: keys(r.Orphans), Deleted: r.Deleted, Young: r.Young, Unknown: keys(r.Unknown), Foreign: keys(r.Foreign), More: r.More,
		Error: message(r.Err),
	}
}
