package s3wire

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/strandline-io/strandline/tiers/remote"
)

// maxEmptyPages is how many pages without an entry a listing may have in a row.
const maxEmptyPages = 100

// List yields objects and prefixes in byte order. It asks for the next page only
// when the one before was taken.
func (b *Bucket) List(ctx context.Context, o remote.ListOptions) iter.Seq2[remote.Object, error] {
	return func(yield func(remote.Object, error) bool) {
		l := lister{b: b, o: o, last: o.StartAfter}
		for {
			page, err := l.next(ctx)
			if err != nil {
				yield(remote.Object{}, err)
				return
			}
			for _, e := range page {
				if !yield(e, nil) {
					return
				}
			}
			if l.done {
				return
			}
		}
	}
}

// lister walks a listing page by page and holds the store to its rules.
type lister struct {
	b     *Bucket
	o     remote.ListOptions
	token string
	last  string // the last key, below the prefix
	empty int    // pages without an entry, in a row
	done  bool
}

// next returns the entries of the next page.
func (l *lister) next(ctx context.Context) ([]remote.Object, error) {
	b := l.b
	req := PageRequest{Prefix: b.full(l.o.Prefix), Delimiter: l.o.Delimiter, Token: l.token}
	if l.o.StartAfter != "" && l.token == "" {
		req.StartAfter = b.full(l.o.StartAfter)
	}
	rctx, f, done := b.attempt(ctx, remote.OpList, l.o.Prefix, 0, 0)
	page, err := b.client.ListPage(rctx, req)
	done()
	if err != nil {
		return nil, b.fail(ctx, "list", l.o.Prefix, reads, f, err)
	}
	entries, err := l.accept(page)
	if err != nil {
		return nil, err
	}
	return entries, l.advance(page, len(entries))
}

// accept makes one ordered list of a page, with keys below the prefix.
func (l *lister) accept(p Page) ([]remote.Object, error) {
	entries := make([]remote.Object, 0, len(p.Objects)+len(p.Prefixes))
	entries = append(entries, p.Objects...)
	for _, prefix := range p.Prefixes {
		entries = append(entries, remote.Object{Key: prefix, IsPrefix: true})
	}
	slices.SortStableFunc(entries, func(x, y remote.Object) int { return cmp.Compare(x.Key, y.Key) })
	kept := entries[:0]
	for _, e := range entries {
		key, ok := l.b.relative(e.Key)
		if !ok || !strings.HasPrefix(key, l.o.Prefix) {
			return nil, l.b.badListing("list", "it answers %q for prefix %q", e.Key, l.b.full(l.o.Prefix))
		}
		if e.IsPrefix && key <= l.o.StartAfter {
			continue // stores differ in whether such a prefix is after it
		}
		if key <= l.last && l.last != "" {
			return nil, l.b.badListing("list", "%q comes after %q", key, l.last)
		}
		l.last = key
		e.Key, e.ETag = key, TrimETag(e.ETag)
		kept = append(kept, e)
	}
	return kept, nil
}

// advance moves to the next page, if there is one that the store can name.
func (l *lister) advance(p Page, entries int) error {
	if !p.Truncated {
		l.done = true
		return nil
	}
	l.empty++
	if entries > 0 {
		l.empty = 0
	}
	switch {
	case p.NextToken == "":
		return l.b.badListing("list", "it says that more follows, without a token to ask for it")
	case p.NextToken == l.token:
		return l.b.badListing("list", "it answers with the token that it was asked with")
	case l.empty > maxEmptyPages:
		return l.b.badListing("list", "%d pages in a row without an entry", l.empty)
	}
	l.token = p.NextToken
	return nil
}
