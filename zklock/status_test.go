package zklock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

func TestStatusShowsTheSession(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		s, err := c.Session(locktest.Soon(t))
		require.NoError(t, err)
		st := c.Status()
		require.Equal(t,
			zklock.SessionStatus{ID: s.ID(), State: session.Connected, Server: srv.Addr(),
				Timeout:  10 * time.Second,
				TickTime: 2 * time.Second, SafeUntil: s.SafeUntil()}, st.Session)
		require.Empty(t, st.Holds)
		require.Empty(t, st.Waits)

		synctest.Wait()
		before := srv.Requests()
		c.Status()
		require.Equal(t, before, srv.Requests(), "without I/O")

		h := locktest.Lock(t, c.Mutex("/l"))
		require.True(t, c.Status().Session.SafeUntil.After(time.Now()))
		srv.Leader().Down()
		synctest.Wait()
		st = c.Status()
		require.Equal(t, session.Disconnected, st.Session.State)
		require.Empty(t, st.Session.Server)
		require.Len(t, st.Holds, 1, "in doubt, and still ours")
		require.Equal(t, h.SafeUntil(), st.Holds[0].SafeUntil)
		require.ErrorIs(t, locktest.End(h), zklock.ErrLeaseExpired)
		synctest.Wait()
		require.Empty(t, c.Status().Holds)

		srv.Leader().Up()
		next, err := c.Session(locktest.Soon(t))
		require.NoError(t, err)
		require.Equal(t, next.ID(), c.Status().Session.ID)
		require.NotEqual(t, s.ID(), next.ID())

		require.NoError(t, c.Close())
		st = c.Status()
		require.Equal(t, session.Over, st.Session.State)
		require.ErrorIs(t, st.Session.Err, zklock.ErrClosed)
	})
}

func TestStatusShowsHoldsAndWaitsOfEveryKind(t *testing.T) {
	for _, k := range journalKinds() {
		t.Run(k.name, func(t *testing.T) {
			locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
				c, other := locktest.Dial(t, srv), locktest.Dial(t, srv)
				_, theirs, err := k.other(other)(locktest.Soon(t))
				require.NoError(t, err)
				asked := time.Now()
				got := make(chan *zklock.Hold, 1)
				go func() {
					if _, h, err := k.lock(c)(context.Background()); err == nil {
						got <- h
					}
					close(got)
				}()
				time.Sleep(time.Second)
				st := c.Status()
				require.Empty(t, st.Holds)
				require.Len(t, st.Waits, 1)
				w := st.Waits[0]
				require.Equal(t, k.kind, w.Kind)
				require.Nil(t, w.Context)
				require.True(t, asked.Equal(w.Since))
				require.Equal(t, 1, w.Ahead)
				require.Equal(t, theirs.Node(), w.HolderNode)
				require.Contains(t, w.HolderOwner, ":", "host and process")

				require.NoError(t, theirs.Unlock())
				h, held := <-got
				require.True(t, held)
				st = c.Status()
				require.Empty(t, st.Waits)
				w.Ahead, w.HolderNode, w.HolderOwner = 0, "", ""
				w.Node, w.Token, w.Count = h.Node(), h.Token(), 1
				w.Since, w.SafeUntil = time.Now(), h.SafeUntil()
				require.Equal(t, []zklock.LockInfo{w}, st.Holds)
				require.NoError(t, h.Unlock())
				require.Empty(t, c.Status().Holds)
				require.Len(t, other.Status().Holds, 0)
			})
		})
	}
}

func TestStatusDropsWhatIsLostOrInVain(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c, other := locktest.Dial(t, srv), locktest.Dial(t, srv)
		h := locktest.Lock(t, c.Mutex("/deleted"))
		locktest.Lock(t, c.Mutex("/too/long", zklock.WithMaxHold(time.Minute)))
		theirs := locktest.Lock(t, other.Mutex("/busy"))
		_, _, err := c.Mutex("/busy").TryLock(locktest.Soon(t))
		require.ErrorIs(t, err, zklock.ErrBusy)
		_, _, err = c.Mutex("/busy").Lock(locktest.Within(t, time.Second))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, _, err = c.Mutex("busy").Lock(locktest.Within(t, time.Second))
		require.ErrorIs(t, err, zklock.ErrPath)
		require.Empty(t, c.Status().Waits)
		require.Len(t, c.Status().Holds, 2)
		require.NoError(t, srv.Delete(h.Node()))
		<-h.Context().Done()
		require.Len(t, c.Status().Holds, 1)
		time.Sleep(time.Minute)
		require.Empty(t, c.Status().Holds)

		// A wait whose session ends has no place in line until it has another.
		done := make(chan error, 1)
		ctx, cancel := context.WithCancel(context.Background())
		go func() { _, _, err := c.Mutex("/busy").Lock(ctx); done <- err }()
		time.Sleep(time.Second)
		require.Equal(t, 1, c.Status().Waits[0].Ahead)
		srv.Leader().Down()
		time.Sleep(time.Minute)
		w := c.Status().Waits[0]
		require.Zero(t, w.Ahead)
		require.Empty(t, w.HolderNode+w.HolderOwner)
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
		require.Empty(t, c.Status().Waits)
		srv.Leader().Up()
		require.ErrorIs(t, theirs.Unlock(), zklock.ErrLeaseExpired)
	})
}

// Many callers at once: each finds its own hold in the status while it holds, and in the end the
// status is empty.
func TestStatusUnderConcurrentUse(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		var calls sync.WaitGroup
		for i := range 20 {
			calls.Go(func() {
				random := rand.New(rand.NewPCG(1, uint64(i)))
				for range 20 {
					owner := fmt.Sprint("caller ", i)
					m := c.Mutex(fmt.Sprint("/l", random.IntN(4)), zklock.WithOwner(owner),
						zklock.WithReentrancy())
					ctx, cancel := context.WithTimeout(context.Background(),
						time.Duration(1+random.IntN(100))*time.Millisecond)
					_, h, err := m.Lock(ctx)
					cancel()
					if err != nil {
						continue
					}
					_, inner, err := m.Lock(h.Context())
					if err != nil {
						t.Error(err)
						return
					}
					mine := 0
					for _, held := range c.Status().Holds {
						if held.Owner == owner && held.Token == h.Token() && held.Count == 2 {
							mine++
						}
					}
					if mine != 1 {
						t.Errorf("%s finds its hold %d times", owner, mine)
					}
					time.Sleep(time.Duration(random.IntN(30)) * time.Millisecond)
					for _, hold := range []*zklock.Hold{h, inner} {
						if err := hold.Unlock(); err != nil {
							t.Error(err)
						}
					}
				}
			})
		}
		calls.Wait()
		synctest.Wait()
		st := c.Status()
		require.Empty(t, st.Holds)
		require.Empty(t, st.Waits)
	})
}
