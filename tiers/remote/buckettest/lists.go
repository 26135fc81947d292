package buckettest

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/strandline-io/strandline/tiers/remote"
)

func keys(t *testing.T, b remote.Bucket, o remote.ListOptions) []string {
	t.Helper()
	var out []string
	for obj, err := range b.List(t.Context(), o) {
		if err != nil {
			t.Fatalf("list %+v: %v", o, err)
		}
		out = append(out, obj.Key)
	}
	return out
}

func checkList(c on) {
	t, b := c.t, c.b
	if got := keys(t, b, remote.ListOptions{}); len(got) != 0 {
		t.Fatalf("an empty bucket lists %v", got)
	}
	for _, key := range []string{"b/2/y", "a", "b/1/x", "b/1/y", "b.log", "c/1", "B"} {
		put(t, b, key, []byte(key))
	}
	for _, c := range []struct {
		o    remote.ListOptions
		want []string
	}{
		{remote.ListOptions{}, []string{"B", "a", "b.log", "b/1/x", "b/1/y", "b/2/y", "c/1"}},
		{remote.ListOptions{Prefix: "b"}, []string{"b.log", "b/1/x", "b/1/y", "b/2/y"}},
		{remote.ListOptions{Prefix: "b/1/"}, []string{"b/1/x", "b/1/y"}},
		{remote.ListOptions{Prefix: "b/1/x"}, []string{"b/1/x"}},
		{remote.ListOptions{Prefix: "none/"}, nil},
		{remote.ListOptions{StartAfter: "b/1/x"}, []string{"b/1/y", "b/2/y", "c/1"}},
		{remote.ListOptions{StartAfter: "b/1/xx"}, []string{"b/1/y", "b/2/y", "c/1"}},
		{remote.ListOptions{Prefix: "b/", StartAfter: "b/1/y"}, []string{"b/2/y"}},
		{remote.ListOptions{StartAfter: "c/1"}, nil},
		{remote.ListOptions{Delimiter: "/"}, []string{"B", "a", "b.log", "b/", "c/"}},
		{remote.ListOptions{Prefix: "b/", Delimiter: "/"}, []string{"b/1/", "b/2/"}},
		{remote.ListOptions{Prefix: "b/1/", Delimiter: "/"}, []string{"b/1/x", "b/1/y"}},
		{remote.ListOptions{Prefix: "b", Delimiter: "/"}, []string{"b.log", "b/"}},
	} {
		if got := keys(t, b, c.o); !slices.Equal(got, c.want) {
			t.Errorf("list %+v: %q, want %q", c.o, got, c.want)
		}
	}
	for o, err := range b.List(t.Context(), remote.ListOptions{Delimiter: "/"}) {
		if err != nil {
			t.Fatal(err)
		}
		if folder := o.Key == "b/" || o.Key == "c/"; o.IsPrefix != folder {
			t.Errorf("%+v: IsPrefix is wrong", o)
		}
		if !o.IsPrefix && (o.Size != int64(len(o.Key)) || o.ETag == "" || o.Modified.IsZero()) {
			t.Errorf("list yields %+v", o)
		}
	}
	for _, err := range b.List(t.Context(), remote.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		break // a listing may be left
	}
}

func checkListMany(c on) {
	t, b := c.t, c.b
	const n, workers = 2500, 16
	var want []string
	for i := range n {
		want = append(want, fmt.Sprintf("many/%d/%010d.log", i%2, i))
	}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n; i += workers {
				if _, err := b.Put(t.Context(), want[i], remote.BytesBody(nil), remote.PutOptions{}); err != nil {
					t.Errorf("put: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	slices.Sort(want)
	if got := keys(t, b, remote.ListOptions{Prefix: "many/"}); !slices.Equal(got, want) {
		t.Fatalf("listed %d keys of %d, or not in order", len(got), len(want))
	}
	if got := keys(t, b, remote.ListOptions{Prefix: "many/", StartAfter: want[1200]}); !slices.Equal(got, want[1201:]) {
		t.Fatalf("listed %d keys after key 1200 of %d", len(got), len(want))
	}
	if got := keys(t, b, remote.ListOptions{Prefix: "many/", Delimiter: "/"}); !slices.Equal(got, []string{"many/0/", "many/1/"}) {
		t.Fatalf("listed the folders %v", got)
	}
	var doomed []string
	for i, key := range want {
		if i != 1000 {
			doomed = append(doomed, key, key+".none")
		}
	}
	if err := b.Delete(t.Context(), doomed...); err != nil {
		t.Fatalf("delete %d keys: %v", len(doomed), err)
	}
	if got := keys(t, b, remote.ListOptions{Prefix: "many/"}); !slices.Equal(got, want[1000:1001]) {
		t.Fatalf("%d keys are left, want only %s", len(got), want[1000])
	}
}

func checkDelete(c on) {
	t, b := c.t, c.b
	put(t, b, "d/a", nil)
	put(t, b, "d/b", nil)
	put(t, b, "d/c", nil)
	if err := b.Delete(t.Context()); err != nil {
		t.Fatalf("delete nothing: %v", err)
	}
	for range 2 {
		if err := b.Delete(t.Context(), "d/a", "d/none", "d/b", "none/at/all"); err != nil {
			t.Fatal(err)
		}
	}
	if got := keys(t, b, remote.ListOptions{}); !slices.Equal(got, []string{"d/c"}) {
		t.Fatalf("left: %v", got)
	}
	wantAbsent(t, b, "d/a")
}
