package faultproxy

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strings"
	"time"
)

// body is what is passed on of a request's body.
func (p *Proxy) body(r *http.Request, rule Rule) io.ReadCloser {
	half := func(then func() error) io.ReadCloser {
		return &halfBody{Reader: io.LimitReader(r.Body, r.ContentLength/2), Closer: r.Body, then: then}
	}
	switch {
	case r.ContentLength == 0:
		return http.NoBody
	case rule.Action == CutRequest:
		return half(func() error { return errCut })
	case rule.Action == StallRequest:
		return half(func() error {
			p.wait(r, 0)
			return errCut
		})
	case rule.Action == FlipRequest:
		return &flipped{ReadCloser: r.Body, at: r.ContentLength / 2}
	case rule.Action == Bandwidth:
		return struct {
			io.Reader
			io.Closer
		}{p.slowly(r.Body, r, rule.Rate), r.Body}
	}
	return r.Body
}

// errCut breaks the connection to the server in the middle of a body.
var errCut = errors.New("faultproxy: cut")

// halfBody does something in the middle of a body.
type halfBody struct {
	io.Reader
	io.Closer
	then func() error
}

func (c *halfBody) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	if errors.Is(err, io.EOF) {
		err = c.then()
	}
	return n, err
}

// flipped is a body with a wrong bit.
type flipped struct {
	io.ReadCloser
	at int64 // bytes until the one
}

func (f *flipped) Read(b []byte) (int, error) {
	n, err := f.ReadCloser.Read(b)
	if f.at >= 0 && f.at < int64(n) {
		b[f.at] ^= 1
	}
	f.at -= int64(n)
	return n, err
}

// slow reads at a rate.
type slow struct {
	io.Reader
	p    *Proxy
	r    *http.Request
	rate int
}

// slowTick is how often a slow body moves.
const slowTick = 10 * time.Millisecond

func (p *Proxy) slowly(body io.Reader, r *http.Request, rate int) io.Reader {
	return &slow{body, p, r, rate}
}

func (s *slow) Read(b []byte) (int, error) {
	s.p.wait(s.r, slowTick)
	if err := s.r.Context().Err(); err != nil {
		return 0, err
	}
	step := max(1, s.rate*int(slowTick/time.Millisecond)/1000)
	return s.Reader.Read(b[:min(len(b), step)])
}

// strip removes the headers that begin with one of the prefixes, in any case.
func strip(h http.Header, prefixes []string) {
	for name := range h {
		for _, p := range prefixes {
			if strings.HasPrefix(strings.ToLower(name), strings.ToLower(p)) {
				delete(h, name)
			}
		}
	}
}

func rewrites(a Action) bool {
	return a == ListNoToken || a == ListSameToken || a == ListDropKey || a == ListOld
}

var (
	token     = regexp.MustCompile(`<NextContinuationToken>[^<]*</NextContinuationToken>`)
	truncated = regexp.MustCompile(`<IsTruncated>[^<]*</IsTruncated>`)
	written   = regexp.MustCompile(`<LastModified>([^<]*)</LastModified>`)
	entry     = regexp.MustCompile(`(?s)<(Contents|CommonPrefixes)>.*?</(Contents|CommonPrefixes)>`)
)

// rewrite makes a listing one of a store that is broken.
func rewrite(b []byte, a Action) []byte {
	const more = "<IsTruncated>true</IsTruncated>"
	if a == ListDropKey {
		if at := entry.FindIndex(b); at != nil {
			return append(bytes.Clone(b[:at[0]]), b[at[1]:]...)
		}
		return b
	}
	if a == ListOld {
		return b
	}
	next := more
	if a == ListSameToken {
		next += "<NextContinuationToken>again</NextContinuationToken>"
	}
	return truncated.ReplaceAll(token.ReplaceAll(b, nil), []byte(next))
}

// aged makes everything in a listing older.
func aged(b []byte, by time.Duration) []byte {
	if by == 0 {
		return b
	}
	return written.ReplaceAllFunc(b, func(m []byte) []byte {
		at, err := time.Parse(time.RFC3339, string(written.FindSubmatch(m)[1]))
		if err != nil {
			return m
		}
		return []byte("<LastModified>" + at.Add(-by).UTC().Format("2006-01-02T15:04:05.000Z") + "</LastModified>")
	})
}

// Class is a kind of request, as a bill has it.
type Class string

// The classes.
const (
	Put       Class = "put"
	Get       Class = "get"
	Head      Class = "head"
	List      Class = "list"
	Delete    Class = "delete"
	Multipart Class = "multipart" // everything of an upload in parts
	Other     Class = "other"
)

// Class returns what kind of request it was.
func (s Seen) Class() Class {
	has := func(parts ...string) bool {
		for _, part := range parts {
			if strings.Contains("&"+s.Query, "&"+part) {
				return true
			}
		}
		return false
	}
	switch {
	case has("uploads", "uploadId=", "partNumber="):
		return Multipart
	case s.Method == http.MethodGet && has("list-type", "prefix=", "delimiter="):
		return List
	case s.Method == http.MethodDelete, s.Method == http.MethodPost && has("delete"):
		return Delete
	case s.Method == http.MethodPut:
		return Put
	case s.Method == http.MethodGet:
		return Get
	case s.Method == http.MethodHead:
		return Head
	}
	return Other
}

// Count is how many requests there were of each class since the last Clear.
func (p *Proxy) Count() map[Class]int {
	out := map[Class]int{}
	for _, s := range p.Seen() {
		out[s.Class()]++
	}
	return out
}
