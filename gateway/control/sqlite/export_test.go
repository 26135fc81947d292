package sqlite

// WithCheckpoints has a checkpoint follow after so many pages.
func (o Options) WithCheckpoints(pages int64) Options {
	o.walPages = pages
	return o
}

// Waiting is the number of operations that wait for the loop.
func (s *Store) Waiting() int { return len(s.queue) }
