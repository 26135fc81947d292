package remote

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/strandline-io/strandline/tiers"
)

// SelfTestPrefix begins the keys of self-tests. What is below it may be removed
// once it is older than a day.
const SelfTestPrefix = "cluster/selftest-"

// SelfTest tries whether b keeps the promises that the tiers rest on, with a few
// small objects that it removes again: what was written is read and listed at
// once, ranges are exact, checksums are looked at, and above all the conditions
// of a Put are obeyed (report 008: a store that ignores them lets two clusters
// own one bucket). The error names each promise that b broke; a store that
// cannot be asked is an error of its own.
func SelfTest(ctx context.Context, b Bucket) error {
	s := &selfTest{b: b, prefix: SelfTestPrefix + rand.Text() + "/"}
	err := s.run(ctx)
	if cerr := s.cleanUp(ctx); err == nil {
		err = cerr
	}
	if err != nil {
		return Fail("self-test of the object store", b.String(), err)
	}
	if len(s.broken) > 0 {
		return tiers.E(tiers.InvalidConfig, "self-test of the object store", b.String(),
			"this store cannot be used, use another one or another version of it: %w", errors.Join(s.broken...))
	}
	return nil
}

// Clock asks b what time it is: it dates a small object, which is removed again.
// Ages of objects can be told only by the clock that dated them.
func Clock(ctx context.Context, b Bucket) (time.Time, error) {
	s := &selfTest{b: b, prefix: SelfTestPrefix + rand.Text() + "/"}
	key := s.key("clock")
	var o Object
	_, err := s.put(ctx, key, selfTestBody, Cond{})
	if err == nil {
		o, err = b.Stat(ctx, key)
	}
	if cerr := s.cleanUp(ctx); err == nil {
		err = cerr
	}
	if err == nil && o.Modified.IsZero() {
		err = errors.New("it does not tell when an object was written")
	}
	return o.Modified, Fail("ask the object store for its time", b.String(), err)
}

type selfTest struct {
	b      Bucket
	prefix string
	keys   []string
	broken []error
}

// lacks notes a promise that was not kept.
func (s *selfTest) lacks(format string, args ...any) {
	s.broken = append(s.broken, fmt.Errorf(format, args...))
}

func (s *selfTest) key(name string) string {
	key := s.prefix + name
	s.keys = append(s.keys, key)
	return key
}

func (s *selfTest) run(ctx context.Context) error {
	for _, check := range []func(context.Context) error{s.reads, s.listing, s.checksums, s.conditions} {
		if err := check(ctx); err != nil {
			return err
		}
	}
	return nil
}

// cleanUp has its own time, so that a start that is broken off leaves nothing.
func (s *selfTest) cleanUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := s.b.Delete(ctx, s.keys...); err != nil {
		return fmt.Errorf("remove the objects of the test below %s: %w", s.prefix, err)
	}
	return nil
}

func (s *selfTest) put(ctx context.Context, key, body string, cond Cond) (Object, error) {
	return s.b.Put(ctx, key, BytesBody([]byte(body)), PutOptions{If: cond})
}

func (s *selfTest) get(ctx context.Context, key string, r Range) (string, Object, error) {
	body, o, err := s.b.Get(ctx, key, r)
	if err != nil {
		return "", o, err
	}
	defer func() { _ = body.Close() }() // it was only read
	content, err := io.ReadAll(body)
	return string(content), o, err
}

const selfTestBody = "0123456789abcdef, written by the self-test of strandline"

func (s *selfTest) reads(ctx context.Context) error {
	key := s.key("read")
	stored, err := s.put(ctx, key, selfTestBody, Cond{})
	if err != nil {
		return err
	}
	content, o, err := s.get(ctx, key, Range{})
	switch {
	case errors.Is(err, ErrNotFound):
		s.lacks("an object cannot be read right after it was written")
		return nil
	case err != nil:
		return err
	case content != selfTestBody || o.Size != int64(len(selfTestBody)):
		s.lacks("%d bytes were written and %d others read", len(selfTestBody), len(content))
	case stored.ETag == "" || o.ETag != stored.ETag:
		s.lacks("the ETag is %q when written and %q when read", stored.ETag, o.ETag)
	}
	part := make([]byte, 6)
	if _, err = s.b.ReadAt(ctx, key, part, 10); err != nil {
		return err
	}
	if !bytes.Equal(part, []byte(selfTestBody[10:16])) {
		s.lacks("a range of bytes is not the one that was asked for")
	}
	_, _, err = s.get(ctx, key, Range{Off: 1000, Len: 10})
	if err = s.tells(err, ErrRange, "a range beyond the end is refused"); err != nil {
		return err
	}
	_, err = s.b.Stat(ctx, s.prefix+"none")
	return s.tells(err, ErrNotFound, "a missing object is told to be missing")
}

// tells notes that the store does not answer with the error that it should,
// unless it does not answer at all.
func (s *selfTest) tells(err, want error, what string) error {
	if errors.Is(err, want) {
		return nil
	}
	if passing(err) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	s.lacks("it is not so that %s (%v)", what, err)
	return nil
}

func (s *selfTest) listing(ctx context.Context) error {
	want := s.keys[0]
	var got []string
	for o, err := range s.b.List(ctx, ListOptions{Prefix: s.prefix}) {
		if err != nil {
			return err
		}
		got = append(got, o.Key)
	}
	if len(got) != 1 || got[0] != want {
		s.lacks("an object is not listed right after it was written: %q instead of %q", got, want)
	}
	return nil
}

func (s *selfTest) checksums(ctx context.Context) error {
	o, err := s.b.Stat(ctx, s.keys[0])
	if err != nil {
		return err
	}
	caps, want := s.b.Caps(), CRC32C([]byte(selfTestBody))
	switch {
	case caps.StoresCRC32C && !o.HasCRC:
		s.lacks("the CRC-32C that came with an object is not kept")
	case o.HasCRC && o.CRC32C != want:
		s.lacks("the CRC-32C of an object is told as %08x, it is %08x", o.CRC32C, want)
	}
	key := s.key("crc")
	_, err = s.b.Put(ctx, key, WithCRC(BytesBody([]byte(selfTestBody)), want+1), PutOptions{})
	switch {
	case err == nil:
		s.lacks("an object whose checksum is wrong is not refused")
	case !errors.Is(err, ErrChecksum):
		return err
	}
	return nil
}

// conditions tries what guards the cluster's claim. Bodies differ, because a
// store may take equal ones for one and the same.
func (s *selfTest) conditions(ctx context.Context) error {
	if !s.b.Caps().ConditionalPut {
		s.lacks("conditional writes (If-None-Match, If-Match) are not supported")
		return nil
	}
	key := s.key("claim")
	first, err := s.put(ctx, key, "first", Cond{Absent: true})
	if err != nil {
		return fmt.Errorf("create an object that must not exist: %w", err)
	}
	if err = s.refused(ctx, key, Cond{Absent: true}, "If-None-Match: * on an object that exists"); err != nil {
		return err
	}
	second, err := s.put(ctx, key, "second", Cond{ETag: first.ETag})
	if err != nil {
		if errors.Is(err, ErrPrecondition) {
			s.lacks("If-Match with the present ETag is refused: %w", err)
			return nil
		}
		return err
	}
	if second.ETag == first.ETag {
		s.lacks("two contents have the ETag %s", first.ETag)
	}
	if err := s.refused(ctx, key, Cond{ETag: first.ETag}, "If-Match with an ETag of the past"); err != nil {
		return err
	}
	return s.refused(ctx, s.key("none"), Cond{ETag: first.ETag}, "If-Match on an object that does not exist")
}

func (s *selfTest) refused(ctx context.Context, key string, cond Cond, what string) error {
	_, err := s.put(ctx, key, "intruder", cond)
	switch {
	case err == nil:
		s.lacks("conditional writes are not obeyed: %s went well", what)
	case errors.Is(err, ErrPrecondition), cond.ETag != "" && errors.Is(err, ErrNotFound):
	default:
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
