package zklock_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest/fault"
)

func TestAOnceOutlivesASessionThatEndsAsALockDoes(t *testing.T) {
	for name, trouble := range map[string]func(s *locktest.Sim, c *locktest.Client){
		"an outage": func(s *locktest.Sim, _ *locktest.Client) {
			refuse := s.Server.Inject(fault.Refuse())
			s.Server.DropConnections()
			synctest.Wait()
			time.AfterFunc(time.Minute, refuse.Remove)
		},
		"its end during the look": func(s *locktest.Sim, c *locktest.Client) {
			s.Server.Inject(fault.ExpireSession().Op(fault.OpGetData).Path(record + "/*/*").Session(c.SessionID()).Once())
		},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				c := s.Client()
				trouble(s, c)
				require.NoError(s, once(s.Context(), c.Job("/jobs/nightly"), "k", new(job).run))
			})
		})
	}
}

// The record's time is that of its write, and the function's end may be long before.
func TestAnOutageBehindTheFunctionMovesNotWhenItBegan(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		j := s.Client(zklock.WithSessionTimeout(40 * time.Second)).Job("/jobs/nightly")
		cutOff := func(context.Context) error {
			refuse := s.Server.Inject(fault.Refuse())
			s.Server.DropConnections()
			time.AfterFunc(20*time.Second, refuse.Remove)
			return nil
		}
		began := time.Now()
		run, err := j.Every(s.Context(), 50*time.Second, cutOff)
		require.NoError(s, err)
		require.WithinDuration(s, began, run.Began, 2*time.Second)
		time.Sleep(time.Until(began.Add(time.Minute)))
		require.NoError(s, every(s.Context(), s.Client().Job("/jobs/nightly"), 50*time.Second, new(job).run), "the next tick is not skipped")

		began = time.Now()
		require.NoError(s, once(s.Context(), j, "k", cutOff))
		n, err := j.ForgetBefore(s.Context(), began.Add(5*time.Second))
		require.NoError(s, err)
		require.Equal(s, 1, n)
	})
}

func TestAJobThatIsTriedAtMostOnceIsNotDoneWhileItsFunctionRuns(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		running, first := make(chan struct{}), make(chan error, 1)
		go func() {
			first <- once(s.Context(), s.Client().Job("/jobs/nightly").AtMostOnce(), "0017-index", func(context.Context) error {
				close(running)
				time.Sleep(time.Minute)
				return nil
			})
		}()
		<-running
		began := time.Now()
		for _, j := range []*zklock.Job{s.Client().Job("/jobs/nightly").AtMostOnce(), s.Client().Job("/jobs/nightly")} {
			require.Equal(s, errDone, once(s.Context(), j, "0017-index", neverRun))
			require.GreaterOrEqual(s, time.Since(began), time.Minute)
		}
		require.NoError(s, <-first)
		began = time.Now()
		require.Equal(s, errDone, once(s.Context(), s.Client().Job("/jobs/nightly").AtMostOnce(), "0017-index", neverRun))
		require.Zero(s, time.Since(began), "one that has ended costs a read")
	})
}

// The program takes back the record of a command that could not be started.
func TestARunOfAtMostOnceThatIsForgottenWhileItIsUnderWayStaysForgotten(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		j, other := s.Client().Job("/jobs/nightly").AtMostOnce(), s.Client().Job("/jobs/nightly")
		require.NoError(s, once(s.Context(), j, "k", func(ctx context.Context) error {
			found, err := other.Forget(ctx, "k")
			require.True(s, found)
			return err
		}))
		require.Empty(s, runsOf(s, other))
	})
}

func TestARecordThatIsDeletedWhileABucketIsMadeIsMadeAgain(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		j := s.Client().Job("/jobs/nightly")
		require.NoError(s, every(s.Context(), j, time.Hour, new(job).run))
		hold := s.Server.Inject(fault.Hold().Op(fault.OpCreate).Path(record + "/*").Once())
		got := make(chan error, 1)
		go func() { got <- once(s.Context(), j, "k", new(job).run) }()
		<-hold.Hit()
		require.NoError(s, s.Server.DeleteAll(record))
		hold.Remove()
		require.NoError(s, <-got)
		require.NoError(s, every(s.Context(), j, time.Hour, new(job).run))
		require.Len(s, runsOf(s, j), 2)
	})
}

// A run that was made again has the version of the one that was forgotten.
func TestForgettingRemovesNoRunThatWasMadeMeanwhile(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		a, b := s.Client(), s.Client()
		j := b.Job("/jobs/nightly")
		require.NoError(s, once(s.Context(), j, "k", new(job).run))
		time.Sleep(time.Hour)
		limit := time.Now()
		hold := s.Server.Inject(fault.Hold().Op(fault.OpMulti).Path(record + "/*/*").Session(a.SessionID()).Once())
		got := make(chan int, 1)
		go func() {
			n, err := a.Job("/jobs/nightly").ForgetBefore(s.Context(), limit)
			if err != nil {
				n = -1
			}
			got <- n
		}()
		<-hold.Hit()
		time.Sleep(time.Second)
		n, err := j.ForgetBefore(s.Context(), limit) // another host cleans up as well
		require.NoError(s, err)
		require.Equal(s, 1, n)
		require.NoError(s, once(s.Context(), j, "k", new(job).run))
		hold.Remove()
		require.Zero(s, <-got)
		require.Equal(s, errDone, once(s.Context(), j, "k", neverRun))
	})
}

func TestAServerThatLagsBehindKnowsWhatWasForgotten(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		a, m := s.Client().Job("/jobs/nightly"), s.Follower()
		b := s.ClientAt(m).Job("/jobs/nightly")
		require.NoError(s, once(s.Context(), a, "k", new(job).run))
		m.Lag(8)
		_, err := a.Forget(s.Context(), "k")
		require.NoError(s, err)
		require.NoError(s, once(s.Context(), b, "k", new(job).run))
		require.NoError(s, once(s.Context(), a, "l", new(job).run))
		time.Sleep(time.Second)
		n, err := b.ForgetBefore(s.Context(), time.Now())
		require.NoError(s, err)
		require.Equal(s, 2, n)
	})
}

// With AtMostOnce, a caller takes an unknown outcome for a run that may have been recorded, and gives the key up.
func TestNoOutcomeIsUnknownWhereNoRunWasWritten(t *testing.T) {
	for name, f := range map[string]fault.Fault{
		"an operator's record": fault.HoldReply().Op(fault.OpSetData).Path(record),
		"the bucket":           fault.HoldReply().Op(fault.OpCreate).Path(record + "/*"),
		"the place in line":    fault.HoldReply().Op(fault.OpCreate, fault.OpMulti).Path("/jobs/nightly/*"),
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				if name == "an operator's record" {
					s.Dir(record)
				}
				c := s.Client()
				s.Server.Inject(f)
				ctx, cancel := context.WithTimeout(s.Context(), time.Second)
				defer cancel()
				err := once(ctx, c.Job("/jobs/nightly").AtMostOnce(), "k", neverRun)
				require.ErrorIs(s, err, zklock.ErrNotRun)
				require.ErrorIs(s, err, context.DeadlineExceeded)
				require.NotErrorIs(s, err, zklock.ErrUnknownOutcome, "%v", err)
			})
		})
	}
}

func TestARecordThatCanNotBeWrittenIsFoundOutBeforeTheFunction(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		forAMutex := zklock.WithACL(zk.WorldACL(zk.PermRead | zk.PermCreate | zk.PermDelete)...)
		err := once(s.Context(), s.Client().Job("/jobs/nightly", forAMutex), "k", neverRun)
		require.ErrorIs(s, err, zk.ErrNoAuth)
		require.ErrorContains(s, err, "WithACL grants this client no READ, WRITE and CREATE")
	})
}

func TestWhatIsNotARunToTheLetterIsAConflict(t *testing.T) {
	for i, data := range []string{
		`{"host":"h","pid":1,"token":1,"took_ms":1}}`, `{"host":"h","pid":1,"token":1,"took_ms":1}]somebody's`,
		`{"host":"h","pid":1,"token":1,"took_ms":9223372036854775807}`, `{"token":1}`, `{"TOKEN":1,"token":2,"host":"x","pid":-5,"took_ms":1}`,
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				j := s.Client().Job("/jobs/nightly")
				require.NoError(s, every(s.Context(), j, time.Hour, new(job).run))
				require.NoError(s, s.Server.SetData(record+"/every", []byte(data)))
				time.Sleep(2 * time.Hour)
				require.ErrorIs(s, every(s.Context(), j, time.Hour, neverRun), zklock.ErrConflict)
				now, _ := s.Server.Node(record + "/every")
				require.Equal(s, data, string(now.Data))
			})
		})
	}
}

func TestRunsPassesOverWhatIsNoneOfTheRecords(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		j := c.Job("/jobs/nightly")
		for i := range 20 {
			require.NoError(s, once(s.Context(), j, fmt.Sprint(i), new(job).run))
		}
		s.Lock(c.Mutex(record + "/eu"))
		require.Len(s, runsOf(s, j), 20)
		seen := 0
		for _, err := range j.Runs(s.Context()) {
			require.NoError(s, err)
			if seen++; seen == 1 {
				require.NoError(s, s.Server.DeleteAll(record))
			}
		}
		require.Less(s, seen, 20)
	})
}

// A caller that takes a cancelled context for its own end must not take a lost run for that.
func TestAnEndOfTheLockIsNoEndOfTheCallersContext(t *testing.T) {
	for name, k := range map[string]struct {
		f    fault.Fault
		opts []zklock.LockOption
		want []error
	}{
		"before the function":           {fault.ExpireSession().Op(fault.OpGetData).Path(record), nil, []error{zklock.ErrNotRun, zklock.ErrLost}},
		"behind it":                     {onRecord(fault.ExpireSession()), nil, []error{zklock.ErrNotRecorded, zklock.ErrLost}},
		"the maximum, before the first": {fault.DelayReply(2 * time.Second).Op(fault.OpGetData).Path(record), []zklock.LockOption{zklock.WithMaxHold(time.Second)}, []error{zklock.ErrNotRun, zklock.ErrMaxHold}},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				c := s.Client()
				s.Server.Inject(k.f.Session(c.SessionID()).Once())
				err := once(s.Context(), c.Job("/jobs/nightly", k.opts...), "k", new(job).run)
				for _, want := range k.want {
					require.ErrorIs(s, err, want)
				}
				require.NotErrorIs(s, err, context.Canceled, "%v", err)
				require.NotErrorIs(s, err, context.DeadlineExceeded, "%v", err)
			})
		})
	}
}

func TestNothingIsFoundBelowAMissingChrootAndThatIsAnError(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c, err := zklock.Dial(s.Context(), s.Server.Addr()+"/misspelt", zklock.WithDialer(s.Server.Dial))
		require.NoError(s, err)
		defer c.Close()
		j := c.Job("/jobs/nightly")
		_, err = j.Forget(s.Context(), "k")
		require.ErrorIs(s, err, zklock.ErrInvalid)
		for _, err := range j.Runs(s.Context()) {
			require.ErrorIs(s, err, zklock.ErrInvalid)
		}
	})
}

func TestAnEnsembleWhoseWritesAreSlowEndsARunOfAtMostOnce(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		s.Server.Inject(onRecord(fault.DelayReply(1200 * time.Millisecond)))
		began := time.Now()
		require.NoError(s, once(s.Context(), s.Client().Job("/jobs/nightly").AtMostOnce(), "k", new(job).run))
		require.Less(s, time.Since(began), 10*time.Second)
	})
}
