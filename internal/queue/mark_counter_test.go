package queue_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/queue"
	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/zktest"
)

// Each mark uses a number of the directory's counter. When the counter passes its half, and its three quarters, still one
// contender holds at a time, and the directory is renewed as soon as the queue is empty.
func TestMarksAreMadeAcrossTheHalfAndTheThreeQuartersOfTheCounter(t *testing.T) {
	const half, three4 = 1 << 30, 3 << 29
	for name, counter := range map[string]int32{"half": half - 20, "three quarters": three4 - 20} {
		for _, version := range []zktest.Version{zktest.Version38, zktest.Version39} {
			t.Run(name+", "+string(version), func(t *testing.T) {
				bubble(t, func(t *testing.T, srv *zktest.Server) {
					const clients, rounds = 6, 8
					require.NoError(t, srv.Create("/l", nil))
					require.NoError(t, srv.SetSequence("/l", counter))
					kind := mutex
					var holders, held atomic.Int32
					var all sync.WaitGroup
					for range clients {
						s := open(t, srv)
						all.Go(func() {
							for range rounds {
								ticket, err := queue.Enter(t.Context(), s, kind(0))
								if err == nil {
									err = ticket.Wait(t.Context())
								}
								if err != nil {
									t.Error(err)
									return
								}
								if n := holders.Add(1); n != 1 {
									t.Errorf("%d hold", n)
								}
								held.Add(1)
								time.Sleep(time.Millisecond)
								holders.Add(-1)
								if err := ticket.Leave(t.Context()); err != nil {
									t.Error(err)
								}
							}
						})
					}
					all.Wait()
					require.EqualValues(t, clients*rounds, held.Load())
					time.Sleep(time.Minute)
					n, ok := srv.Node("/l")
					require.True(t, ok)
					require.Empty(t, srv.Children("/l"))
					require.Less(t, recipe.NewListing(nil, zk.Stat{Cversion: n.Stat.Cversion}).Counter, int32(half), "it is renewed")
				}, zktest.WithVersion(version))
			})
		}
	}
}
