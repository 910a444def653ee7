package zklock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// Sizes of a semaphore when something goes wrong around a Resize, or around its directory.

// Scenario 60: the reply to a Resize is lost, or its caller dies at any moment of it, while others come in by the larger
// size. One who comes after that waits behind a holder that it can't tell from one who waits: a release of any other
// holder that makes room lets it in.
func TestAResizeThatIsCutOffLosesNoWakeUp(t *testing.T) {
	for _, k := range []struct {
		name  string
		dies  bool
		fault zktest.Fault
	}{
		{"nothing goes wrong", false, zktest.Delay(0)},
		{"the reply is lost", false, zktest.CloseAfter()},
		{"the request is lost", false, zktest.CloseBefore()},
		{"it dies behind its write", true, zktest.CloseAfter()},
		{"it dies before its write", true, zktest.CloseBefore()},
	} {
		t.Run(k.name, func(t *testing.T) {
			simTest(t, func(s *sim) {
				dir, a := s.dir("/locks/a"), s.client()
				first, second := semTake(s, s.client().Semaphore(dir, 4), 1), semTake(s, s.client().Semaphore(dir, 4), 1)
				held := s.srv.Inject(zktest.Hold().Op(zktest.OpSetData).Path(dir).Session(a.id()))
				s.srv.Inject(k.fault.Op(zktest.OpSetData).Path(dir).Session(a.id()).Once())
				resized := make(chan error, 1)
				go func() { resized <- a.Semaphore(dir, 4).Resize(s.Context(), 2) }()
				<-held.Hit()
				third, fourth := semTake(s, s.client().Semaphore(dir, 4), 1), semTake(s, s.client().Semaphore(dir, 4), 1)
				if k.dies {
					away := s.srv.Inject(zktest.Refuse())
					held.Remove()
					synctest.Wait()
					id := a.id()
					require.NoError(s, s.srv.Expire(id))
					require.NoError(s, a.Close())
					away.Remove()
					require.Error(s, <-resized)
				} else {
					held.Remove()
					require.NoError(s, <-resized)
				}
				late := s.client()
				m := late.Semaphore(dir, 2)
				want := 2
				if n, _ := s.srv.Node(dir); string(n.Data) == `{"size":4}` { // it was never made
					m, want = late.Semaphore(dir, 4), 4
				}
				last := semAside(s, m, 1)
				time.Sleep(time.Minute)
				require.False(s, last.over())
				for i, h := range []*zklock.Hold{first, second, third} {
					s.unlock(h)
					require.Equal(s, 3-i+1 <= want, last.over(), "%d of %d permits are held", 3-i, want)
				}
				s.unlock(fourth)
				s.unlock(last.get(s))
				semNothingLeft(s, dir)
			})
		})
	}
}

// Scenario 60: one whose znode was made while the size was low, and whose look at the size comes when it is high again,
// holds without having waited. Another, who has seen the low size and waits behind it, is told.
func TestASizeThatGoesDownAndUpBetweenTwoLooksLosesNoWakeUp(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, a, b := s.dir("/locks/a"), s.client(), s.client()
		m := a.Semaphore(dir, 5)
		h := semTake(s, m, 1)
		s.unlock(semTake(s, b.Semaphore(dir, 5), 1)) // it knows the size
		create := s.srv.Inject(zktest.Hold().Op(zktest.OpCreate).Session(b.id()).Once())
		quick := simGo(s.Context(), semAcquire(b.Semaphore(dir, 5), 1))
		<-create.Hit()
		require.NoError(s, m.Resize(s.Context(), 1))
		look := s.srv.Inject(zktest.Hold().Op(zktest.OpGetData).Path(dir).Session(b.id()).Once())
		create.Release()
		<-look.Hit()
		behind := semAside(s, s.client().Semaphore(dir, 1), 1)
		require.False(s, behind.over())
		require.NoError(s, m.Resize(s.Context(), 5))
		look.Release()
		require.True(s, quick.over())
		require.True(s, behind.over(), "three of five")
		s.unlock(quick.get(s))
		s.unlock(behind.get(s))
		s.unlock(h)
		semNothingLeft(s, dir)
	})
}

// After a Resize to fewer, a release still wakes two at most of those who waited before.
func TestAfterALowerSizeAReleaseWakesTwo(t *testing.T) {
	simTest(t, func(s *sim) {
		dir := s.dir("/locks/a")
		m := s.client().Semaphore(dir, 20)
		var holds []*zklock.Hold
		for range 20 {
			holds = append(holds, semTake(s, m, 1))
		}
		var waiters []*simCall
		var clients []*simClient
		for range 10 {
			clients = append(clients, s.client())
			waiters = append(waiters, semAside(s, clients[len(clients)-1].Semaphore(dir, 20), 1))
		}
		require.NoError(s, m.Resize(s.Context(), 10))
		time.Sleep(time.Minute)
		woken := func() (n int) {
			for _, c := range clients {
				n += s.notified(c.id())
			}
			return n
		}
		for i, h := range holds[:19] {
			before := woken()
			s.unlock(h)
			synctest.Wait()
			require.LessOrEqual(s, woken()-before, 4, "release %d", i) // two, and each wakes the next as it begins to hold
		}
		for _, w := range waiters {
			s.unlock(w.get(s))
		}
		s.unlock(holds[19])
		semNothingLeft(s, dir)
	})
}

// The directory of a semaphore goes at any moment of a call, as a container does: the call goes on, and no answer of the
// ensemble is taken for its own.
func TestASemaphoreWhoseDirectoryGoesDuringACallGoesOn(t *testing.T) {
	for _, op := range []zktest.Op{zktest.OpGetData, zktest.OpSetData, zktest.OpCreate} {
		for _, what := range []string{"acquire", "try acquire", "resize"} {
			if op == zktest.OpCreate && what == "resize" {
				continue // makes nothing
			}
			t.Run(op.String()+" of "+what, func(t *testing.T) {
				simTest(t, func(s *sim) {
					dir, c := s.dir("/locks/a"), s.client() // without a size: it is written
					if op != zktest.OpSetData {
						s.unlock(semTake(s, s.client().Semaphore(dir, 3, zklock.WithContainer()), 1))
					}
					in := s.srv.Inject(zktest.Hold().Op(op).Session(c.id()).Once())
					m := c.Semaphore(dir, 3, zklock.WithContainer())
					call := simGo(s.Context(), func(ctx context.Context) (*zklock.Hold, error) {
						switch what {
						case "acquire":
							return m.Acquire(ctx, 2)
						case "try acquire":
							return m.TryAcquire(ctx, 2)
						}
						return nil, m.Resize(ctx, 7)
					})
					<-in.Hit()
					require.NoError(s, s.srv.Delete(dir))
					in.Release()
					<-call.done
					require.NoError(s, call.err)
					if call.hold != nil {
						s.owned(c, call.hold)
						s.unlock(call.hold)
						return
					}
					s.unlock(semTake(s, s.client().Semaphore(dir, 7), 7))
				})
			})
		}
	}
}

// A size that Resize has written is not forgotten with a container: the directory stays from then on.
func TestASizeThatWasResizedOutlivesTheContainer(t *testing.T) {
	for _, first := range []bool{true, false} {
		t.Run(map[bool]string{true: "resized before use", false: "resized in use"}[first], func(t *testing.T) {
			simTest(t, func(s *sim) {
				s.dir("/locks")
				const dir = "/locks/a"
				m := s.client().Semaphore(dir, 2, zklock.WithContainer())
				if !first {
					s.unlock(semTake(s, m, 1))
				}
				require.NoError(s, m.Resize(s.Context(), 5))
				require.NoError(s, m.Resize(s.Context(), 4), "again")
				s.unlock(semTake(s, m, 4))
				time.Sleep(time.Hour)
				fresh := s.client()
				_, err := fresh.Semaphore(dir, 2, zklock.WithContainer()).Acquire(s.Context(), 1)
				require.ErrorIs(s, err, zklock.ErrConflict)
				require.ErrorContains(s, err, "has 4 permits at the ensemble, not 2")
				h := semTake(s, fresh.Semaphore(dir, 4, zklock.WithContainer()), 4)
				line, err := fresh.Queue(s.Context(), dir)
				require.NoError(s, err)
				require.Len(s, line, 1)
				s.unlock(h)
			})
		})
	}
	simTest(t, func(s *sim) { // one that was never resized
		s.dir("/locks")
		s.unlock(semTake(s, s.client().Semaphore("/locks/a", 2, zklock.WithContainer()), 1))
		s.until(time.Hour, "the container goes", func() bool { _, ok := s.srv.Node("/locks/a"); return !ok })
		s.unlock(semTake(s, s.client().Semaphore("/locks/a", 3, zklock.WithContainer()), 3))
	})
}

// A size that was read from a server that lags behind is no reason to refuse a call.
func TestASizeThatAServerHasNotHeardOfYetRefusesNobody(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, a, b := s.dir("/locks/a"), s.client(), s.client()
		s.unlock(semTake(s, a.Semaphore(dir, 2), 2))
		f := s.follower()
		b.at(f)
		s.srv.Leader().DropConnections()
		old, open := b.Semaphore(dir, 2), b.Semaphore(dir, 5)
		s.unlock(semTake(s, old, 2))
		s.until(10*time.Second, "both are connected", func() bool {
			info, ok := s.srv.Session(b.id())
			return ok && info.Member == f && info.Connected && a.SessionStatus().Server != ""
		})
		f.Lag(1)
		require.NoError(s, a.Semaphore(dir, 2).Resize(s.Context(), 5))
		s.unlock(semTake(s, open, 1))
		f.Lag(0)
		require.NoError(s, a.Semaphore(dir, 2).Resize(s.Context(), 6))
		f.Lag(1)
		require.NoError(s, a.Semaphore(dir, 2).Resize(s.Context(), 9))
		s.unlock(semTake(s, old, 9))
	})
}

// Scenario 65: a call whose context comes from holds of the same semaphore, and that can't be served beside them, would
// wait for itself. One that can be, or that does not wait, is no deadlock.
func TestScenario65_ASemaphoreDoesNotWaitForItsOwnCaller(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, c, other := s.dir("/locks/a"), s.client(), s.client()
		m := c.Semaphore(dir, 3)
		one := semTake(s, m, 1)
		under := func(h *zklock.Hold, m *zklock.Semaphore, n int) (*zklock.Hold, error) {
			return m.Acquire(h.Context(), n)
		}

		_, err := under(one, m, 3)
		require.ErrorIs(s, err, zklock.ErrDeadlock)
		require.ErrorContains(s, err, "1 of 3 permits, and asks for 3 more")
		two, err := under(one, m, 1)
		require.NoError(s, err, "there is room for both")
		_, err = under(two, m, 2)
		require.ErrorIs(s, err, zklock.ErrDeadlock, "with the outer hold's")
		_, err = under(two, c.Semaphore(dir, 3, zklock.WithWait(time.Minute)), 2)
		require.ErrorIs(s, err, zklock.ErrDeadlock)
		_, err = m.TryAcquire(two.Context(), 2)
		require.ErrorIs(s, err, zklock.ErrBusy, "it does not wait")
		elsewhere, err := under(two, c.Semaphore(s.dir("/locks/b"), 1), 1)
		require.NoError(s, err, "another semaphore")
		s.unlock(elsewhere)

		s.unlock(two)
		three, err := under(two, m, 2) // its context has ended, and so the call has no time: but not for a deadlock
		require.ErrorIs(s, err, context.Canceled)
		require.NotErrorIs(s, err, zklock.ErrDeadlock)
		require.Nil(s, three)

		busy := semTake(s, other.Semaphore(dir, 3), 2)
		wait := simGo(one.Context(), semAcquire(m, 2))
		require.False(s, wait.over(), "for somebody else, who will release")
		s.unlock(busy)
		s.unlock(wait.get(s))

		require.NoError(s, m.Resize(s.Context(), 4))
		big, err := under(one, m, 3)
		require.NoError(s, err, "the size counts that is at the ensemble")
		s.unlock(big)
		s.unlock(one)
		require.NoError(s, c.Semaphore("/locks/c", 1).Do(s.Context(), 1, func(ctx context.Context) error {
			require.ErrorIs(s, c.Semaphore("/locks/c", 1).Do(ctx, 1, func(context.Context) error { return nil }), zklock.ErrDeadlock)
			return nil
		}))
		semNothingLeft(s, dir)
	})
}
