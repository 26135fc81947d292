package sqlite_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/gateway/control/controltest"
	"github.com/strandline-io/strandline/gateway/control/model"
	"github.com/strandline-io/strandline/gateway/control/sqlite"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/fsys/mem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// engine opens stores of the suite at path on what newFS returns.
func engine(newFS func(tb testing.TB) (fs fsys.FS, path string)) controltest.Engine {
	places := map[control.Store]func(tb testing.TB) control.Store{}
	return controltest.Engine{
		Open: func(tb testing.TB, o controltest.Options) control.Store {
			tb.Helper()
			fs, path := newFS(tb)
			var again func(tb testing.TB) control.Store
			again = func(tb testing.TB) control.Store {
				tb.Helper()
				s, err := sqlite.Open(fs, path, sqlite.Options{Now: o.Now, Rand: o.Rand, QuickCheck: true})
				if err != nil {
					tb.Fatal(err)
				}
				places[s] = again
				return s
			}
			return again(tb)
		},
		Reopen: func(tb testing.TB, s control.Store) control.Store {
			tb.Helper()
			if err := s.Close(); err != nil {
				tb.Fatal(err)
			}
			return places[s](tb)
		},
	}
}

func onMem(testing.TB) (fsys.FS, string) { return mem.New(), "/control.db" }

func onDisk(tb testing.TB) (fsys.FS, string) {
	tb.Helper()
	return fsys.OS{}, tb.TempDir() + "/control.db"
}

func TestConformance(t *testing.T) { controltest.Run(t, engine(onMem)) }

func TestConformanceOnDisk(t *testing.T) { controltest.Run(t, engine(onDisk)) }

// TestSQLiteAgainstModel runs one random list of operations on both.
func TestSQLiteAgainstModel(t *testing.T) {
	oracle := controltest.Engine{Open: func(_ testing.TB, o controltest.Options) control.Store {
		return model.New(model.Options{Now: o.Now, Rand: o.Rand})
	}}
	controltest.Differential(t, engine(onMem), oracle)
}
