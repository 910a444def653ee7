package zklock_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// tryAgainLater are the answers of a server that stays connected and could not see to a request.
var tryAgainLater = map[fault.Code]string{
	-127:                       "the server has too much to do and has dropped the request",
	fault.CodeOperationTimeout: "the server's time for the operation was over",
	fault.CodeConnectionLoss:   "the server has lost its connection",
}

// Scenario 72: whatever request of a call is answered "try again", at whatever moment, the call goes on.
func TestScenario72_AnAnswerThatSaysTryAgainEndsNoCall(t *testing.T) {
	locks := map[string]func(c *locktest.Client) locktest.Acquire{
		"mutex":     func(c *locktest.Client) locktest.Acquire { return c.Mutex("/locks/a").Lock },
		"writer":    func(c *locktest.Client) locktest.Acquire { return c.RWMutex("/locks/a").Lock },
		"semaphore": func(c *locktest.Client) locktest.Acquire { return locktest.Permits(c.Semaphore("/locks/a", 1), 1) },
		"multi":     func(c *locktest.Client) locktest.Acquire { return c.MultiLock([]string{"/locks/b", "/locks/a"}).Lock },
		"election": func(c *locktest.Client) locktest.Acquire {
			return locktest.Campaign(c.Election("/locks/a"), "")
		},
	}
	ops := []fault.Op{fault.OpCreate, fault.OpDelete, fault.OpMulti, fault.OpGetChildren2, fault.OpExists,
		fault.OpGetData, fault.OpSetData, fault.OpSetWatches, fault.OpSync}
	hits := map[fault.Op]*atomic.Int64{}
	for _, op := range ops {
		hits[op] = new(atomic.Int64)
	}
	t.Cleanup(func() { // when all have run
		for op, n := range hits {
			assert.Positive(t, n.Load(), "no call has asked for %v", op)
		}
	})
	for name, lock := range locks {
		for code := range tryAgainLater {
			for _, late := range []bool{false, true} {
				t.Run(fmt.Sprint(name, " ", code, " late ", late), func(t *testing.T) {
					for _, op := range ops {
						locktest.Simulate(t, func(s *locktest.Sim) {
							a, b := s.Client(), s.Client()
							var in *zktest.Injection
							trouble := func() { in = s.Server.Inject(fault.Answer(code).Op(op).Session(b.SessionID()).Times(3)) }
							if op == fault.OpSync { // which the look for a doubtful create begins with
								s.Server.Inject(fault.CloseAfter().Op(fault.OpCreate).Session(b.SessionID()).Once())
							}
							h := s.Take(lock(a))
							if !late {
								trouble()
							}
							call := s.Start(lock(b))
							time.Sleep(20 * time.Second)
							require.False(s, call.Over(), "%v: %v", op, call.Err)
							if late {
								trouble()
							}
							s.Unlock(h)
							s.Until(time.Minute, "the waiter's turn", call.Over)
							h = call.Get(s)
							time.Sleep(10 * time.Second)
							require.NoError(s, h.Err(), op)
							s.Unlock(h)
							s.Empty(time.Minute, "/locks/a")
							hits[op].Add(int64(in.Hits()))
						}, zktest.WithVersion(zktest.Version39))
					}
				})
			}
		}
	}
}

// A call that is answered nothing else until its ctx ends says what the answer was.
func TestScenario72_ACallThatIsAnsweredTryAgainUntilItsEndSaysSo(t *testing.T) {
	for code, says := range tryAgainLater {
		for _, op := range []fault.Op{fault.OpMulti, fault.OpCreate, fault.OpGetChildren2} {
			locktest.Simulate(t, func(s *locktest.Sim) {
				s.Dir("/locks/a")
				c := s.Client()
				in := s.Server.Inject(fault.Answer(code).Op(op).Session(c.SessionID()))
				if op == fault.OpMulti {
					s.Server.Inject(fault.Answer(code).Op(fault.OpCreate).Session(c.SessionID()))
				}
				ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
				defer cancel()
				_, _, err := c.Mutex("/locks/a").Lock(ctx)
				require.ErrorIs(s, err, context.DeadlineExceeded)
				require.ErrorContains(s, err, says)
				require.Less(s, int(in.Hits()), 100, "it hammers the server")
				require.NoError(s, c.Current().Err())
			}, zktest.WithVersion(zktest.Version39))
		}
	}
}

// Scenario 73: the ensemble ends session after session, as soon as it is asked for an ephemeral znode.
func TestScenario73_ACallWhoseSessionsEndOneAfterTheOtherSaysSo(t *testing.T) {
	for name, opts := range map[string][]zklock.LockOption{"a znode of its own": nil, "local hand-off": {zklock.WithLocalHandoff()}} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				s.Dir("/locks/a")
				s.Server.Inject(fault.Answer(fault.CodeSessionExpired).Op(fault.OpCreate))
				c := s.Client()
				ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
				defer cancel()
				_, _, err := c.Mutex("/locks/a", opts...).Lock(ctx)
				require.ErrorIs(s, err, context.DeadlineExceeded)
				require.Regexp(s, `\d\d attempts before that failed, the last one with: .*expired by the ensemble`, err.Error())
			})
		})
	}
}
