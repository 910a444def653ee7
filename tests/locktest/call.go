package locktest

import (
	"context"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zklock"
)

// Call is a lock call that runs while the test does something else.
type Call struct {
	Done chan struct{}
	// Set when done is closed.
	Hold  *zklock.Hold
	Err   error
	At    time.Time // when it returned
	Spent time.Duration
}

// Go runs call in a goroutine, which ends with it.
func Go(ctx context.Context, call Acquire) *Call {
	c, began := &Call{Done: make(chan struct{})}, time.Now()
	go func() {
		defer close(c.Done)
		_, c.Hold, c.Err = call(ctx)
		c.At = time.Now()
		c.Spent = c.At.Sub(began)
	}()
	return c
}

// Over reports whether the call has returned, after everything that could happen has.
func (c *Call) Over() bool {
	synctest.Wait()
	select {
	case <-c.Done:
		return true
	default:
		return false
	}
}

// Get waits for the call and demands success.
func (c *Call) Get(s *Sim) *zklock.Hold {
	s.Helper()
	limit := time.NewTimer(time.Hour)
	defer limit.Stop()
	select {
	case <-c.Done:
	case <-limit.C:
		require.FailNow(s, "the call still waits after an hour")
	}
	require.NoError(s, c.Err)
	require.NotNil(s, c.Hold)
	return c.Hold
}
