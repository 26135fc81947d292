package spool

import (
	"path"
	"slices"
	"time"

	"github.com/strandline-io/strandline/tiers/remote"
)

// found is a file of an earlier process.
type found struct {
	id   remote.PieceID
	name string
	size int64
	at   time.Time
}

// adopt takes over the files of an earlier process, the oldest first, and removes
// those that were being written, and those beyond the limit.
func (s *Spool) adopt() error {
	if err := s.fs.MkdirAll(s.o.Dir, 0o700); err != nil {
		return err
	}
	shards, err := s.fs.ReadDir(s.o.Dir)
	if err != nil {
		return err
	}
	var all []found
	strange := 0
	for _, d := range shards {
		if !d.IsDir() || !isShard(d.Name()) {
			strange++
			continue
		}
		more, odd, err := s.scan(d.Name())
		if err != nil {
			return err
		}
		all, strange = append(all, more...), strange+odd
	}
	if strange > 0 {
		s.o.Log.Warn("there are files in the folder of the disk cache that are not its own: they stay, and do not count", "folder", s.o.Dir, "files", strange)
	}
	slices.SortFunc(all, func(a, b found) int { return a.at.Compare(b.at) })
	for _, f := range all {
		s.add(f.id, f.size)
		s.used += f.size
	}
	return s.evict(0)
}

// scan lists one folder of files, and removes what was never finished.
func (s *Spool) scan(shard string) (all []found, strange int, err error) {
	dir := path.Join(s.o.Dir, shard)
	entries, err := s.fs.ReadDir(dir)
	if err != nil {
		return nil, 0, err
	}
	for _, e := range entries {
		id, temp, ok := parseName(shard, e.Name())
		if !ok {
			strange++
			continue
		}
		if temp {
			if err := s.remove(path.Join(dir, e.Name())); err != nil {
				return nil, 0, err
			}
			continue
		}
		st, err := e.Info()
		if err != nil {
			return nil, 0, err
		}
		all = append(all, found{id, e.Name(), blocks(st.Size()), st.ModTime()})
	}
	return all, strange, nil
}
