package simulation_test

import (
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zktest"
)

var (
	seeds = flag.Uint64("seeds", 1000, "how many seeds to run")
	first = flag.Uint64("first", 1, "the first of them")
	limit = flag.Duration("limit", time.Minute/raceFactor,
		"start no more seeds after this time; unlimited with -seeds")
	again = flag.Int("again", 1, "how often to run each seed")
	stop  = flag.Int64("stop", 5, "after how many failures to stop; 0: never")
	print = flag.Bool("print", false, "print the history of every seed")
	like  = flag.String("like", "",
		"run all seeds on this zktest.Version; by default the seed determines it")
)

// stuck is the real time that a seed may take: some thousand times its usual duration.
const stuck = 3 * time.Minute

// simulate runs one seed. A failure prints its history and the violations.
func simulate(t *testing.T, seed uint64, struck *hits) {
	var w *world
	// The timer is outside the bubble: a bubble that is stuck does not advance its clock.
	watchdog := time.AfterFunc(stuck, func() {
		buf := make([]byte, 1<<20)
		panic(fmt.Sprintf("seed %d has not ended\n%s\n%s", seed, w.report(),
			buf[:runtime.Stack(buf, true)]))
	})
	defer watchdog.Stop()
	defer func() {
		p := recover() // for example when a goroutine is left
		if p != nil || len(w.bad) > 0 || t.Failed() {
			t.Errorf("%s\npanic: %v", w.report(), p)
		} else if *print {
			t.Log(w.report())
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Run(t, zktest.WithoutListener(), zktest.WithVersion(versionOf(seed)))
		var err error
		w, err = newWorld(seed, srv)
		require.NoError(t, err)
		w.run(t.Context())
		struck.add(w.once)
	})
}

// versionOf returns the version of the servers that a seed runs on.
func versionOf(seed uint64) zktest.Version {
	switch {
	case *like != "":
		return zktest.Version(*like)
	case seed%3 == 0:
		return zktest.Version39
	}
	return zktest.Version38
}

func TestRandomUseAndRandomFaultsBreakNoGuarantee(t *testing.T) {
	defer collectRarely()()
	var next atomic.Uint64
	var ran, failed atomic.Int64
	struck := &hits{of: map[aim]int{}}
	began, late := time.Now(), time.Now().Add(*limit)
	flag.Visit(func(f *flag.Flag) {
		if f.Name == "seeds" { // all that were requested
			late = began.Add(1 << 62)
		}
	})
	t.Run("seeds", func(t *testing.T) {
		for i := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				for time.Now().Before(late) && (*stop == 0 || failed.Load() < *stop) {
					n := next.Add(1) - 1
					if n >= *seeds*uint64(*again) {
						return
					}
					ran.Add(1)
					seed := *first + n/uint64(*again)
					if !t.Run(fmt.Sprint(seed), func(t *testing.T) {
						simulate(t, seed, struck)
						collect()
					}) {
						failed.Add(1)
					}
				}
			})
		}
	})
	t.Logf("%d seeds from %d: %d failed, in %v", ran.Load(), *first, failed.Load(),
		time.Since(began).Round(time.Millisecond))
	table, missed := struck.table()
	t.Logf("how often each fault struck:%s", table)
	if struck.all >= 1000 {
		require.Empty(t, missed, "faults that never struck")
	}
}

// collectRarely has the garbage collector run rarely, since seeds make much garbage and keep
// nothing; and with one processor only between seeds, since a collection changes the order in which
// goroutines run.
func collectRarely() (restore func()) {
	percent := 400
	if runtime.GOMAXPROCS(0) == 1 {
		percent = -1
	}
	before := debug.SetGCPercent(percent)
	return func() { debug.SetGCPercent(before) }
}

// collect runs the garbage collector, if it was put off until the end of a seed.
func collect() {
	if runtime.GOMAXPROCS(0) == 1 {
		runtime.GC()
	}
}
