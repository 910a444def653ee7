package zklock_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
)

// Tests of an Election; most are scripts: testdata/scripts/election.txt.

// lead campaigns, which must succeed.
func lead(s *locktest.Sim, e *zklock.Election, value string) *zklock.Hold {
	s.Helper()
	return s.Take(locktest.Campaign(e, value))
}

func TestALeadersValueTokenAndOwnerAreVisible(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, a := s.Dir("/e"), s.Client()
		e := a.Election(dir, zklock.WithOwner("worker 7"))
		l := lead(s, e, "10.0.0.5:80")
		for _, value := range []string{"10.0.0.5:80", "10.0.0.5:81"} {
			require.NoError(s, e.Proclaim(s.Context(), l, []byte(value)))
			leader, err := s.Client().Election(dir).Leader(s.Context())
			require.NoError(s, err)
			require.Equal(s, value, string(leader.Value))
			require.Equal(s, l.Token(), leader.Token)
			require.Equal(s, l.Node(), leader.Node)
			require.Equal(s, "worker 7", leader.Owner)
			require.Equal(s, a.SessionID(), leader.Session)
			require.NotEmpty(s, leader.Host)
			require.NotZero(s, leader.PID)
		}
	})
}

func TestAProclamationThatCanNotBeMadeChangesNothing(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, c := s.Dir("/e"), s.Client()
		e := c.Election(dir)
		tooLong := make([]byte, 64<<10+1)
		_, _, err := e.Campaign(s.Context(), tooLong)
		require.ErrorIs(s, err, zklock.ErrInvalid)
		leads := func(context.Context, *zklock.Hold) error { s.Error("it leads"); return nil }
		require.ErrorIs(s, e.Run(s.Context(), tooLong, leads), zklock.ErrInvalid)
		l := lead(s, e, "v")
		require.ErrorIs(s, e.Proclaim(s.Context(), l, tooLong), zklock.ErrInvalid)
		require.NoError(s, l.Err())
		_, _, err = e.Campaign(l.Context(), nil)
		require.ErrorIs(s, err, zklock.ErrDeadlock, "under one's own leadership")
	})
}

// After a lost term Run goes on, so nobody else would hear of lead's error.
func TestRunLogsLeadsErrorAfterALostTerm(t *testing.T) {
	for name, k := range map[string]struct {
		end  func(ctx context.Context) error
		logs bool
	}{
		"its own error": {func(context.Context) error {
			return errors.New("the books don't balance")
		}, true},
		"its context's error": {func(ctx context.Context) error { return ctx.Err() }, false},
		"its context's cause": {context.Cause, false},
		"no error":            {func(context.Context) error { return nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				var log strings.Builder
				c := s.Client(zklock.WithLogger(slog.New(slog.NewTextHandler(&log,
					&slog.HandlerOptions{Level: slog.LevelWarn}))))
				terms := 0
				require.NoError(s,
					c.Election("/e").Run(s.Context(), nil,
						func(ctx context.Context, _ *zklock.Hold) error {
							if terms++; terms > 1 {
								return nil
							}
							require.NoError(s, s.Server.Expire(c.SessionID()))
							<-ctx.Done()
							return k.end(ctx)
						}))
				require.Equal(s, 2, terms)
				require.NoError(s, c.Close())
				require.Equal(s, k.logs, strings.Contains(log.String(), "the books don't balance"))
			})
		})
	}
}

func TestBreakingOutOfObservingLeavesNothing(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, a, watcher := s.Dir("/e"), s.Client(), s.Client()
		idle := locktest.Goroutines()
		leave := func(why string, f func()) {
			s.Helper()
			f()
			synctest.Wait()
			require.Empty(s, s.Watched(watcher.SessionID()), why)
			require.Equal(s, idle, locktest.Goroutines(), why)
		}
		first := func() {
			for range watcher.Election(dir).Observe(s.Context()) {
				break
			}
		}
		leave("at no leader", first)
		l := lead(s, a.Election(dir), "a")
		time.Sleep(time.Second) // until the leader watches its own znode
		idle = locktest.Goroutines()
		leave("at a leader", first)
		leave("at a change", func() {
			n := 0
			for range watcher.Election(dir).Observe(s.Context()) {
				if n++; n == 2 {
					break
				}
				require.NoError(s, a.Election(dir).Proclaim(s.Context(), l, []byte("b")))
			}
		})
		leave("by a panic", func() {
			defer func() { require.Equal(s, "oops", recover()) }()
			for range watcher.Election(dir).Observe(s.Context()) {
				panic("oops")
			}
		})
		ctx, cancel := context.WithCancel(s.Context())
		defer cancel()
		leave("by the end of ctx", func() {
			var last error
			for _, err := range watcher.Election(dir).Observe(ctx) {
				last = err
				cancel()
			}
			require.ErrorIs(s, last, context.Canceled)
		})
		for range 50 {
			first()
		}
		synctest.Wait()
		require.Equal(s, 1, s.Server.WatchCount(), "the leader's own, on itself")
	})
}

func TestProclaimTakesNoTermOfAnotherClientsElection(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		term := s.Take(locktest.Campaign(s.Client().Election("/e"), "v"))
		require.ErrorIs(s, s.Client().Election("/e").Proclaim(s.Context(), term, nil),
			zklock.ErrInvalid)
	})
}

// A server that was the leader of the ensemble, and is cut off, still lists a candidate that has
// resigned.
func TestLeaderAsksAMajority(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, deposed := s.Dir("/e"), s.Follower()
		term := lead(s, s.Client().Election(dir), "a")
		observer := s.ClientAt(deposed)
		deposed.Depose()
		s.Unlock(term)
		_, err := observer.Election(dir).Leader(locktest.Within(s, 5*time.Second))
		require.ErrorIs(s, err, context.DeadlineExceeded)
	})
}
