package adapters_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zktest"
)

// Scenario 97: several instances with the same times run a job once for each of them.
func TestScenario97_RobfigCronRunsAJobOnceForEachTime(t *testing.T) {
	srv := zktest.Run(t)
	var mu sync.Mutex
	var runs []time.Time
	work := func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		runs = append(runs, time.Now())
		return nil
	}
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(runs)
	}
	const period = 750 * time.Millisecond // three quarters of a second
	for range 4 {
		client := locktest.Dial(t, srv)
		c := cron.New(cron.WithSeconds())
		_, err := c.AddFunc("* * * * * *", func() {
			// An instance that is not the first in this second returns without a run.
			_, err := client.Job("/jobs/report").Every(t.Context(), period, work)
			if err != nil {
				t.Error(err)
			}
		})
		require.NoError(t, err)
		c.Start()
		defer func() { <-c.Stop().Done() }()
	}
	eventually(t, "five runs", func() bool { return count() >= 5 })
	mu.Lock()
	defer mu.Unlock()
	for i := 1; i < len(runs); i++ {
		require.Greater(t, runs[i].Sub(runs[i-1]), 700*time.Millisecond, "%v", runs)
	}
}
