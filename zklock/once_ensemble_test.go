package zklock_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/locktest"
	"github.com/zklock/locker/zklock"
)

// On real servers, the record of a run is found by the other clients.
func TestOnceOnRealServers(t *testing.T) {
	e := locktest.SiteOf(t, 3)
	path := e.Path(t)
	var job job
	var all sync.WaitGroup
	errs := make(chan error, 16)
	for i := range 4 {
		c := e.Client(t)
		for _, start := range []func(o *zklock.Once) error{
			func(o *zklock.Once) error { return o.Do(locktest.Soon(t), "k", job.run) },
			func(o *zklock.Once) error { return o.Every(locktest.Soon(t), time.Hour, job.run) },
		} {
			all.Go(func() { errs <- start(c.Once(path, zklock.WithOwner(fmt.Sprint("host ", i)))) })
		}
	}
	all.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			require.ErrorIs(t, err, zklock.ErrDone)
		}
	}
	// Every counts any run; the run for the key may be earlier or later.
	require.LessOrEqual(t, job.runs.Load(), int32(2))
	require.GreaterOrEqual(t, job.runs.Load(), int32(1))
	runs, err := e.Client(t).Once(path).Runs(locktest.Soon(t))
	require.NoError(t, err)
	require.Len(t, runs, int(job.runs.Load()))
	keyed := 0
	for _, r := range runs {
		if r.Key == "k" {
			keyed++
		}
		require.WithinDuration(t, time.Now(), r.Began, time.Minute)
	}
	require.Equal(t, 1, keyed)
}
