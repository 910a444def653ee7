package zklock_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
)

// A hold has no goroutine and no connection of its own: the timers and heartbeats of one session serve all holds.
func TestAHoldHasNoGoroutineOfItsOwn(t *testing.T) {
	locktest.SimulateAlone(t, func(s *locktest.Sim) {
		dir, c := s.Dir("/l"), s.Client()
		s.Unlock(s.Lock(c.Mutex(dir)))
		time.Sleep(time.Second)
		before := locktest.Goroutines()
		var holds []*zklock.Hold
		for i := range 500 {
			holds = append(holds, s.Lock(c.Mutex(fmt.Sprintf("%s/%d", dir, i))))
		}
		time.Sleep(time.Minute) // past the moment from which a hold is watched
		require.LessOrEqual(s, locktest.Goroutines(), before+2, "goroutines of 500 holds")
		for _, h := range holds {
			s.Unlock(h)
		}
	})
}
