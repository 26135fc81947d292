package mem

import (
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/strandline-io/strandline/tiers/fsys"
)

// SyncDir makes the names in a folder durable, and the steps that they rest on.
func (m *FS) SyncDir(name string) error {
	return m.change(fsys.Op{Kind: fsys.OpSyncDir, Name: name}, func() error {
		dir, err := m.find(name)
		if err != nil {
			return fail("syncdir", name, err)
		}
		m.settle(dir)
		return nil
	})
}

// settle makes the pending steps that touch dir durable, and before each those
// that it must not overtake. Going backwards sees every step after all that rest
// on it.
func (m *FS) settle(dir *inode) {
	due := make([]bool, len(m.pending))
	needed := newTouched()
	for i := len(m.pending) - 1; i >= 0; i-- {
		s := m.pending[i]
		due[i] = needed.any(s) || slices.ContainsFunc(s.changes, func(c change) bool { return c.dir == dir })
		if due[i] {
			needed.add(s)
		}
	}
	var rest []step
	for i, s := range m.pending {
		if !due[i] {
			rest = append(rest, s)
			continue
		}
		for _, c := range s.changes {
			c.put(c.dir.durable)
		}
	}
	m.pending = rest
}

func (c change) put(names map[string]*inode) {
	if c.to == nil {
		delete(names, c.name)
	} else {
		names[c.name] = c.to
	}
}

// touched is the names and files that a set of steps touches.
type touched struct {
	names map[string]map[*inode]bool // name, folder
	files map[*inode]bool
}

func newTouched() touched {
	return touched{names: map[string]map[*inode]bool{}, files: map[*inode]bool{}}
}

func (t touched) add(s step) {
	for _, c := range s.changes {
		if t.names[c.name] == nil {
			t.names[c.name] = map[*inode]bool{}
		}
		t.names[c.name][c.dir] = true
		for _, n := range []*inode{c.from, c.to} {
			if n != nil {
				t.files[n] = true
			}
		}
	}
}

func (t touched) any(s step) bool {
	return slices.ContainsFunc(s.changes, func(c change) bool {
		return t.names[c.name][c.dir] || c.from != nil && t.files[c.from] || c.to != nil && t.files[c.to]
	})
}

// KillCopy returns what a killed process leaves: everything that was written,
// and the same of it durable as before.
func (m *FS) KillCopy() *FS {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := copier{made: map[*inode]*inode{}}
	out := m.empty()
	out.root = c.whole(m.root)
	for _, s := range m.pending {
		changes := make([]change, len(s.changes))
		for i, ch := range s.changes {
			changes[i] = change{c.whole(ch.dir), ch.name, c.whole(ch.from), c.whole(ch.to)}
		}
		out.pending = append(out.pending, step{changes})
	}
	return out
}

// SyncedCopy returns the least that a power loss leaves: what was synced.
func (m *FS) SyncedCopy() *FS { return m.powerLoss(nil) }

// CrashCopy returns what a power loss may leave. The same history and the same
// seed give the same copy.
func (m *FS) CrashCopy(seed uint64) *FS { return m.powerLoss(rand.New(rand.NewPCG(seed, 0))) }

func (m *FS) powerLoss(rng *rand.Rand) *FS {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := copier{made: map[*inode]*inode{}, rng: rng, names: map[*inode]map[string]*inode{}}
	if rng != nil {
		c.chooseSteps(m.pending)
	}
	out := m.empty()
	out.root = c.durable(m.root)
	return out
}

// empty is an FS with the settings of m and no hook.
func (m *FS) empty() *FS {
	return &FS{locked: map[string]bool{}, now: m.now, capacity: m.capacity}
}

// copier makes one copy. made keeps a file with two names one file.
type copier struct {
	made  map[*inode]*inode
	rng   *rand.Rand
	names map[*inode]map[string]*inode // of the folders that a surviving step touched
}

// chooseSteps lets each pending step survive with probability 1/2, unless one
// before it that it must not overtake did not.
func (c *copier) chooseSteps(pending []step) {
	lost := newTouched()
	for _, s := range pending {
		if lost.any(s) || c.rng.IntN(2) == 0 {
			lost.add(s)
			continue
		}
		for _, ch := range s.changes {
			if c.names[ch.dir] == nil {
				c.names[ch.dir] = maps.Clone(ch.dir.durable)
			}
			ch.put(c.names[ch.dir])
		}
	}
}

// whole copies n with its page cache.
func (c *copier) whole(n *inode) *inode {
	if n == nil {
		return nil
	}
	if out := c.made[n]; out != nil {
		return out
	}
	out := &inode{mode: n.mode, mtime: n.mtime, low: n.low}
	c.made[n] = out
	if !n.isDir() {
		out.cached, out.synced = n.cached.freeze(), n.synced
		return out
	}
	out.names, out.durable = map[string]*inode{}, map[string]*inode{}
	for name, below := range n.names {
		out.names[name] = c.whole(below)
	}
	for name, below := range n.durable {
		out.durable[name] = c.whole(below)
	}
	return out
}

// durable copies what the disk holds of n.
func (c *copier) durable(n *inode) *inode {
	if out := c.made[n]; out != nil {
		return out
	}
	out := &inode{mode: n.mode, mtime: n.mtime}
	c.made[n] = out
	if !n.isDir() {
		out.cached = c.content(n)
		out.synced, out.low = out.cached, out.cached.size
		return out
	}
	names, ok := c.names[n]
	if !ok {
		names = n.durable
	}
	out.names, out.durable = map[string]*inode{}, map[string]*inode{}
	for _, name := range sortedNames(names) {
		below := c.durable(names[name])
		out.names[name], out.durable[name] = below, below
	}
	return out
}

// content is what the disk holds of a file's bytes.
func (c *copier) content(n *inode) *content {
	if c.rng == nil || n.cached == n.synced {
		return n.synced
	}
	size := c.size(n)
	out := newContent()
	for i := range int((size + pageSize - 1) / pageSize) {
		was, is := n.synced.at(i), n.cached.at(i)
		if was == is {
			out.pages = append(out.pages, pageRef{p: was})
			continue
		}
		c.mixPage(out.writable(i), was, is, int64(i)*pageSize >= n.low)
	}
	out.size = int64(len(out.pages)) * pageSize
	out.truncate(size)
	return out.freeze()
}

// size chooses the size of a file that was not synced.
func (c *copier) size(n *inode) int64 {
	was, is, low := n.synced.size, n.cached.size, n.low
	switch c.rng.IntN(4) {
	case 0:
		return was
	case 1:
		return is
	case 2:
		return low
	}
	return low + c.rng.Int64N(max(was, is)-low+1)
}

// mixPage chooses each sector from the old and the new page. Where the file was
// cut in between, a sector may also be zero.
func (c *copier) mixPage(dst, was, is *page, cut bool) {
	var zero page
	if was == nil {
		was = &zero
	}
	if is == nil {
		is = &zero
	}
	for i := 0; i < pageSize; i += sectorSize {
		from := was
		switch pick := c.rng.IntN(4); {
		case pick < 2:
			from = is
		case cut && pick == 2:
			from = &zero
		}
		copy(dst[i:i+sectorSize], from[i:i+sectorSize])
	}
}
