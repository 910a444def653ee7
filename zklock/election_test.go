package zklock_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest/fault"
)

// Tests of an Election, from the view of its candidates.

func TestALeadersValueTokenAndOwnerAreVisible(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, a, b := s.Dir("/e"), s.Client(), s.Client()
		e, seen := a.Election(dir, zklock.WithOwner("worker 7")), b.Election(dir)
		_, err := seen.Leader(s.Context())
		require.ErrorIs(s, err, zklock.ErrNoLeader)
		_, err = b.Election("/missing").Leader(s.Context())
		require.ErrorIs(s, err, zklock.ErrNoLeader)
		l := lead(s, e, "10.0.0.5:80")
		behind := campaign(s.Context(), b.Election(dir), "b")
		require.False(s, behind.Over())
		leader, err := seen.Leader(s.Context())
		require.NoError(s, err)
		require.Equal(s, "10.0.0.5:80", string(leader.Value))
		require.Equal(s, l.Token(), leader.Token)
		require.Equal(s, l.Node(), leader.Node)
		require.Equal(s, "worker 7", leader.Owner)
		require.Equal(s, a.SessionID(), leader.Session)
		require.NotEmpty(s, leader.Host)
		require.NotZero(s, leader.PID)
		require.NoError(s, e.Proclaim(s.Context(), l, []byte("10.0.0.5:81")))
		leader, err = seen.Leader(s.Context())
		require.NoError(s, err)
		require.Equal(s, "10.0.0.5:81", string(leader.Value))
		require.Equal(s, "worker 7", leader.Owner, "the rest stays")
		require.Equal(s, l.Token(), leader.Token)
		require.False(s, behind.Over())
		require.NoError(s, l.Unlock())
		require.ErrorIs(s, e.Proclaim(s.Context(), l, nil), zklock.ErrUnlocked)
		behind.Get(s)
		leader, err = seen.Leader(s.Context())
		require.NoError(s, err)
		require.Equal(s, "b", string(leader.Value))
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

		s.Server.Inject(fault.DropReply().Op(fault.OpNotify))
		require.NoError(s, s.Server.Delete(l.Node()))
		synctest.Wait()
		require.NoError(s, l.Err(), "it has not heard of it")
		require.ErrorIs(s, e.Proclaim(s.Context(), l, []byte("late")), zklock.ErrNodeDeleted)
		require.ErrorIs(s, l.Err(), zklock.ErrNodeDeleted)
	})
}

func TestRunResignsWhenItsCallbackReturns(t *testing.T) {
	oops := errors.New("oops")
	for name, want := range map[string]error{"nil": nil, "an error": oops} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dir, a, b := s.Dir("/e"), s.Client(), s.Client()
				next := (*locktest.Call)(nil)
				err := a.Election(dir).Run(s.Context(), nil, func(work context.Context, l *zklock.Hold) error {
					next = campaign(s.Context(), b.Election(dir), "b")
					time.Sleep(time.Minute)
					require.NoError(s, work.Err())
					require.False(s, next.Over())
					return want
				})
				require.Equal(s, want, err)
				next.Get(s)
			})
		})
	}
}

func TestRunReturnsTheErrorOfACallbackThatResignedByItself(t *testing.T) {
	oops := errors.New("oops")
	for _, want := range []error{nil, oops} {
		locktest.Simulate(t, func(s *locktest.Sim) {
			dir, c := s.Dir("/e"), s.Client()
			require.Equal(s, want, c.Election(dir).Run(s.Context(), nil, func(work context.Context, l *zklock.Hold) error {
				require.NoError(s, l.Unlock())
				require.ErrorIs(s, work.Err(), context.Canceled)
				return want
			}))
			require.Empty(s, s.Server.Children(dir))
		})
	}
}

func TestRunEndsWithItsContextInEveryState(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(s *locktest.Sim, dir string)
		after   time.Duration
	}{
		"before it begins": {func(*locktest.Sim, string) {}, 0},
		"while it waits":   {func(s *locktest.Sim, dir string) { lead(s, s.Client().Election(dir), "x") }, time.Minute},
		"while it leads":   {func(*locktest.Sim, string) {}, time.Minute},
		"between two terms": {func(s *locktest.Sim, dir string) { // each is over at once
			s.Server.Inject(fault.Answer(fault.CodeOperationTimeout).Op(fault.OpCreate).Path(dir + "/*"))
		}, 1500 * time.Millisecond},
		"without a server": {func(s *locktest.Sim, _ string) { s.Server.Leader().Down() }, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dir, client := s.Dir("/e"), s.Client()
				c.prepare(s, dir)
				ctx, cancel := context.WithTimeout(s.Context(), c.after)
				defer cancel()
				began := time.Now()
				err := client.Election(dir).Run(ctx, nil, func(work context.Context, _ *zklock.Hold) error {
					deadline, ok := work.Deadline()
					require.True(s, ok)
					require.Equal(s, began.Add(c.after), deadline)
					<-work.Done()
					return work.Err()
				})
				require.ErrorIs(s, err, context.DeadlineExceeded)
				require.Equal(s, c.after, time.Since(began))
				s.Server.Leader().Up()
				s.Until(20*time.Second, "nothing of it stands", func() bool {
					info, _ := s.Server.Session(client.SessionID())
					return len(info.Ephemerals) == 0
				})
			})
		})
	}
}

// The term is lost, and ctx ends before the callback returns: Run returns the error of ctx, whatever the callback returns.
func TestRunWhoseContextEndsAfterALossReturnsTheContextsError(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, c := s.Dir("/e"), s.Client()
		ctx, cancel := context.WithCancel(s.Context())
		oops := errors.New("oops")
		err := c.Election(dir).Run(ctx, nil, func(work context.Context, l *zklock.Hold) error {
			time.Sleep(time.Second)
			require.NoError(s, s.Server.Delete(l.Node()))
			<-work.Done()
			cancel()
			return oops
		})
		require.ErrorIs(s, err, context.Canceled)
		require.ErrorIs(s, err, oops)
		require.ErrorIs(s, err, zklock.ErrNodeDeleted)
	})
}

func TestRunOfACampaignThatCanNotSucceedReturns(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		closed := s.Client()
		require.NoError(s, closed.Close())
		c, taken := s.Client(), s.Dir("/taken")
		lead(s, s.Client().Election(taken), "x")
		_, _, err := s.Client().RWMutex("/rw").RLock(s.Context())
		require.NoError(s, err)
		shut := s.Dir("/shut")
		_, err = s.Stranger().SetACL(s.Context(), shut, zk.WorldACL(zk.PermRead), -1)
		require.NoError(s, err)
		for _, bad := range []struct {
			e    *zklock.Election
			want error
		}{
			{closed.Election("/e"), zklock.ErrClosed},
			{c.Election("e"), zklock.ErrPath},
			{c.Election("/e", zklock.WithMaxHold(0)), zklock.ErrInvalid},
			{c.Election("/rw"), zklock.ErrConflict},
			{c.Election(shut), zk.ErrNoAuth},
			{c.Election(taken, zklock.WithMaxWait(time.Second)), zklock.ErrBusy},
		} {
			err := bad.e.Run(s.Context(), nil, func(context.Context, *zklock.Hold) error { panic("called") })
			require.ErrorIs(s, err, bad.want)
		}
	})
}

// Terms end by WithMaxHold, repeatedly: each time the callback has returned, and the next candidate has led.
func TestRunCampaignsAgainAfterAMaximumTerm(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, a, b := s.Dir("/e"), s.Client(), s.Client()
		ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
		defer cancel()
		var mine, theirs terms
		ended := make(chan error, 2)
		for c, terms := range map[*locktest.Client]*terms{a: &mine, b: &theirs} {
			go func() { // ends with ctx
				ended <- c.Election(dir, zklock.WithMaxHold(5*time.Second)).Run(ctx, nil,
					func(work context.Context, l *zklock.Hold) error {
						defer terms.begin(l)()
						<-work.Done()
						return work.Err()
					})
			}()
		}
		for range 2 {
			require.ErrorIs(s, <-ended, context.DeadlineExceeded)
		}
		mine.check(s)
		theirs.check(s)
		require.InDelta(s, 6, mine.count(), 1)
		require.InDelta(s, 6, theirs.count(), 1)
	})
}

// After a lost term Run goes on, so nobody else would hear of lead's error.
func TestRunLogsLeadsErrorAfterALostTerm(t *testing.T) {
	for name, k := range map[string]struct {
		end  func(ctx context.Context) error
		logs bool
	}{
		"its own error":       {func(context.Context) error { return errors.New("the books don't balance") }, true},
		"its context's error": {func(ctx context.Context) error { return ctx.Err() }, false},
		"its context's cause": {context.Cause, false},
		"no error":            {func(context.Context) error { return nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				var log strings.Builder
				c := s.Client(zklock.WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))))
				terms := 0
				require.NoError(s, c.Election("/e").Run(s.Context(), nil, func(ctx context.Context, _ *zklock.Hold) error {
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
