package zklock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
)

// semaphoreWorld is a semaphore that many clients use in every way at once, with the invariants after every step.
type semaphoreWorld struct {
	s     *locktest.Sim
	dir   string
	size  int
	rnd   *rand.Rand
	cs    []*locktest.Client
	calls []permitsCall
	log   []string
}

// permitsCall is a call under way, or the hold that it returned.
type permitsCall struct {
	*locktest.Call
	leave  context.CancelFunc
	client int
}

func (w *semaphoreWorld) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

// step makes one random step.
func (w *semaphoreWorld) step() {
	i := w.rnd.IntN(len(w.cs))
	switch pick := w.rnd.IntN(100); {
	case pick < 45:
		n := 1 + w.rnd.IntN(min(3, w.size))
		ctx, leave := context.WithCancel(w.s.Context())
		m := w.cs[i].Semaphore(w.dir, w.size)
		w.note("client %d asks for %d", i, n)
		w.calls = append(w.calls, permitsCall{locktest.Go(ctx, locktest.Permits(m, n)), leave, i})
	case pick < 80 && len(w.calls) > 0:
		j := w.rnd.IntN(len(w.calls))
		call := w.calls[j]
		w.calls = slices.Delete(w.calls, j, j+1)
		w.note("call %d of client %d ends, it held: %v", j, call.client, call.Over())
		call.leave()
		<-call.Done
		if call.Err == nil {
			_ = call.Hold.Unlock() // it may have been lost
		}
	case pick < 88:
		w.size = 1 + w.rnd.IntN(6)
		w.note("size %d", w.size)
		require.NoError(w.s, w.cs[i].Semaphore(w.dir, w.size).Resize(w.s.Context(), w.size))
	case pick < 92:
		w.note("connections break")
		w.s.Server.DropConnections()
		time.Sleep(5 * time.Second)
	case pick < 95:
		w.note("client %d expires", i)
		require.NoError(w.s, w.s.Server.Expire(w.cs[i].SessionID()))
		time.Sleep(5 * time.Second)
	case pick < 97:
		if names := locktest.Contenders(w.s.Server.Children(w.dir)); len(names) > 0 {
			name := names[w.rnd.IntN(len(names))]
			w.note("%s is deleted", name)
			require.NoError(w.s, w.s.Server.Delete(w.dir+"/"+name))
			time.Sleep(time.Second) // a hold younger than 300 ms is not notified at once
		}
	default:
		w.note("time passes")
		time.Sleep(time.Second)
	}
}

// check requires that no contender waits for which there is room, and that none is forgotten.
func (w *semaphoreWorld) check() {
	synctest.Wait()
	line := locktest.Contenders(w.s.Server.Children(w.dir))
	held := map[string]bool{}
	w.calls = slices.DeleteFunc(w.calls, func(c permitsCall) bool {
		if !c.Over() {
			return false
		}
		if c.Err != nil || c.Hold.Err() != nil {
			return true // the size had been lowered during it, or it was lost
		}
		held[path.Base(c.Hold.Node())] = true
		return false
	})
	for name := range held {
		require.Contains(w.s, line, name, "a hold without a znode after %v", w.log)
	}
	require.Len(w.s, line, len(w.calls), "one place for each call after %v", w.log)
	waits := false
	for _, name := range line {
		if held[name] {
			require.False(w.s, waits, "%s overtook after %v", name, w.log)
			continue
		}
		waits = true
		require.False(w.s, recipe.Decide(recipe.Listing{Names: line}, name, w.size, nil).Holds, "there is room for %s after %v", name, w.log)
	}
}

// Whatever many clients do with one semaphore, after every step exactly the first in line for which there is room hold: no
// wake-up is ever missed.
func TestASemaphoreUsedInEveryWayForgetsNoContender(t *testing.T) {
	seeds := uint64(40)
	if locktest.Long() {
		seeds = 300
	}
	locktest.EachSeed(t, seeds, func(t *testing.T, seed uint64) {
		locktest.Simulate(t, func(s *locktest.Sim) {
			w := &semaphoreWorld{s: s, dir: s.Dir("/locks/a"), size: 3, rnd: rand.New(rand.NewPCG(seed, 6))}
			for range 4 {
				w.cs = append(w.cs, s.Client(zklock.WithSessionTimeout(20*time.Second)))
			}
			for range 60 {
				w.step()
				w.check()
			}
			for _, call := range w.calls {
				call.leave()
				<-call.Done
				if call.Err == nil {
					_ = call.Hold.Unlock()
				}
			}
			s.NothingLeft(w.dir)
		})
	})
}
