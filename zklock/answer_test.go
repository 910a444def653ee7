package zklock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// stops are the ends that stop a call.
var stops = map[string]struct {
	stop func(s *locktest.Sim, c *locktest.Client, cancel context.CancelFunc)
	says error
}{
	"ctx": {func(_ *locktest.Sim, _ *locktest.Client, cancel context.CancelFunc) {
		cancel()
	}, context.Canceled},
	"client": {func(s *locktest.Sim, c *locktest.Client, _ context.CancelFunc) {
		require.NoError(s, c.Close())
	}, zklock.ErrClosed},
	"session": {func(s *locktest.Sim, c *locktest.Client, _ context.CancelFunc) {
		over := c.Current()
		require.NoError(s, s.Server.Expire(over.ID()))
		<-over.Done()
	}, nil}, // the call goes on in the next one
	"session, then ctx": {func(s *locktest.Sim, c *locktest.Client, cancel context.CancelFunc) {
		over := c.Current()
		require.NoError(s, s.Server.Expire(over.ID()))
		<-over.Done()
		cancel()
	}, context.Canceled},
	"ctx, then client": {func(s *locktest.Sim, c *locktest.Client, cancel context.CancelFunc) {
		cancel()
		require.NoError(s, c.Close())
	}, context.Canceled},
}

// Scenario 81: a call is stopped at each moment at which it looks whether to go on. If the server
// had refused it before, the refusal is its error; otherwise the end is.
func TestARefusalDecidesWhateverEndsBeforeTheCallLooks(t *testing.T) {
	for name, c := range map[string]struct {
		answer fault.Fault // is the refusal, or comes with it
		call   func(*zklock.Mutex, context.Context) (context.Context, *zklock.Hold, error)
		want   error
	}{
		"refused": {fault.Answer(fault.CodeNoAuth).Op(fault.OpCreate, fault.OpCreate2),
			(*zklock.Mutex).Lock, zk.ErrNoAuth},
		"busy": {fault.Delay(0).Op(fault.OpGetChildren2), (*zklock.Mutex).TryLock,
			zklock.ErrBusy},
	} {
		for what, end := range stops {
			for kind, opts := range map[string][]zklock.LockOption{"": nil,
				", handed on": {zklock.WithLocalHandoff()}} {
				t.Run(name+", "+what+kind, func(t *testing.T) {
					for at, reached := int32(1), true; reached; at++ {
						locktest.Simulate(t, func(s *locktest.Sim) {
							defer s.Unlock(s.Lock(s.Client().Mutex("/m")))
							client := s.Client()
							in := s.Server.Inject(c.answer.Session(client.SessionID()))
							ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
							defer cancel()
							answered := false
							var ended time.Time
							looks := locktest.EndAt(ctx, at, func() {
								answered = in.Hits() > 0
								end.stop(s, client, cancel)
								ended = time.Now()
							})
							_, _, err := c.call(client.Mutex("/m", opts...), looks)
							reached = looks.Reached()
							switch {
							case !reached:
								require.ErrorIs(s, err, c.want)
							case answered:
								require.ErrorIs(s, err, c.want, "%d", at)
								require.Equal(s, ended, time.Now(), "%d: it is not asked again", at)
								require.True(s, end.says == nil || !errors.Is(err, end.says),
									"%d: %v", at, err)
							case end.says != nil:
								require.ErrorIs(s, err, end.says, "%d", at)
							}
						})
					}
				})
			}
		}
	}
}

// The turn of a call comes, and its context ends, before the call looks for either.
func TestATurnThatHasComeDecidesAlthoughTheContextEnds(t *testing.T) {
	for range 20 { // which of the two a select takes is random
		locktest.Simulate(t, func(s *locktest.Sim) {
			m := s.Client().Mutex("/m", zklock.WithLocalHandoff())
			h := s.Lock(m)
			ctx, cancel := context.WithCancel(s.Context())
			gate := make(chan struct{})
			call := locktest.Go(locktest.LateContext{Context: ctx, Gate: gate}, m.Lock)
			synctest.Wait()
			s.Unlock(h)
			synctest.Wait()
			cancel()
			close(gate)
			s.Unlock(call.Get(s))
			s.NothingLeft("/m")
		})
	}
}

// What a campaign was answered last may pass: so Run's ctx has stopped it, and its error says so.
func TestACampaignThatItsContextStopsSaysSo(t *testing.T) {
	for at, reached := int32(1), true; reached && at < 100; at++ {
		locktest.Simulate(t, func(s *locktest.Sim) {
			dir, c := s.Dir("/e"), s.Client()
			s.Server.Inject(fault.Answer(-1).Op(fault.OpCreate, fault.OpCreate2))
			ctx, cancel := context.WithTimeout(s.Context(), 5*time.Second)
			defer cancel()
			looks := locktest.EndAt(ctx, at, cancel)
			err := c.Election(dir).Run(looks, nil, func(context.Context, *zklock.Hold) error {
				return nil
			})
			require.ErrorIs(s, err, looks.Err(), "%d", at)
			reached = errors.Is(err, context.Canceled)
		})
	}
}

// WithMaxWait's time is over, and then the call's own context ends, before the call looks for
// either.
func TestAWaitWhoseTimeIsOverIsBusyAlthoughItsContextEnds(t *testing.T) {
	for at, reached := int32(1), true; reached; at++ {
		locktest.Simulate(t, func(s *locktest.Sim) {
			m := s.Client().Mutex("/m", zklock.WithMaxWait(time.Second))
			defer s.Unlock(s.Lock(s.Client().Mutex("/m")))
			ctx, cancel := context.WithCancel(s.Context())
			defer cancel()
			began, want := time.Now(), zklock.ErrBusy
			looks := locktest.EndAt(ctx, at, func() {
				if cancel(); time.Since(began) < time.Second {
					want = context.Canceled
				}
			})
			_, _, err := m.Lock(looks)
			reached = looks.Reached()
			require.ErrorIs(s, err, want, "%d", at)
		})
	}
}

func TestADialThatItsContextStopsSaysSo(t *testing.T) {
	for at, reached := int32(1), true; reached; at++ {
		locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
			srv.Leader().Down()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			want, began := context.DeadlineExceeded, time.Now()
			looks := locktest.EndAt(ctx, at, func() {
				if cancel(); time.Since(began) < time.Minute {
					want = context.Canceled
				}
			})
			_, err := zklock.Dial(looks, srv.Addr(), zklock.WithDialer(srv.Dial),
				zklock.WithoutLog())
			reached = looks.Reached()
			require.ErrorIs(t, err, want, "%d", at)
		})
	}
}

// The observer's session ends after a server has refused to list the candidates.
func TestARefusalEndsObservingAlthoughTheSessionEnds(t *testing.T) {
	for at, reached := int32(1), true; reached; at++ {
		locktest.Simulate(t, func(s *locktest.Sim) {
			dir, c := s.Dir("/e"), s.Client()
			over := c.Current()
			in := s.Server.Inject(
				fault.Answer(fault.CodeNoAuth).Op(fault.OpGetChildren2).Session(over.ID()))
			ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
			defer cancel()
			want := zk.ErrNoAuth
			looks := locktest.EndAt(ctx, at, func() {
				if in.Hits() == 0 { // then the next session reads
					want = context.DeadlineExceeded
				}
				require.NoError(s, s.Server.Expire(over.ID()))
				<-over.Done()
			})
			var last error
			for _, last = range c.Election(dir).Observe(looks) {
			}
			reached = looks.Reached()
			require.ErrorIs(s, last, want, "%d", at)
		})
	}
}

// The session ends, and with it the context of the call, at the moment at which the Client has
// found the session established.
func TestAClientReturnsItsSessionOrAnErrorAsBothEnd(t *testing.T) {
	for range 10 {
		srv := zktest.Run(t, zktest.WithoutListener())
		c := locktest.Dial(t, srv)
		s, err := c.Session(t.Context())
		require.NoError(t, err)
		ctx, id := s.Context(), s.ID()
		go func() { _ = srv.Expire(id) }()
		for err == nil {
			s, err = c.Session(ctx)
			require.True(t, s != nil || err != nil)
		}
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, c.Close())
	}
}

// The reply to the write of the record is lost, and there is no connection until ctx ends. The run
// is recorded, so no client will ever make it. The error must not say only that it was not run.
func TestAnAtMostOnceRunThatMayBeRecordedSaysSo(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		away := s.Server.Inject(fault.Refuse())
		s.Server.Inject(onRecord(fault.CloseAfter()).Session(c.SessionID()).Once())
		ctx, cancel := context.WithTimeout(s.Context(), 3*time.Second)
		defer cancel()
		var job job
		err := once(ctx, c.Job("/jobs/nightly").AtMostOnce(), "k", job.run)
		require.ErrorIs(s, err, zklock.ErrNotRun)
		require.Zero(s, job.runs.Load())
		away.Remove()
		runs := runsOf(s, s.Client().Job("/jobs/nightly"))
		require.Len(s, runs, 1, "it is recorded")
		require.ErrorIs(s, err, zklock.ErrUnknownOutcome, "and the error must not hide that")
	})
}

// What happens to the record while the function runs, or to the write of the run behind it, costs
// one write more at most. The server refuses what exceeds the bound, so that a call that writes
// without an end fails.
func TestARunIsWrittenOnceAndOnceMoreWhereItsRecordIsNotAsItWas(t *testing.T) {
	const node, bound = record + "/every", 5
	written := func(f fault.Fault) fault.Fault { return f.Op(fault.OpMulti).Path(node) }
	anothers := []byte(`{"host":"another","pid":1,"token":1,"took_ms":0}`)
	for name, c := range map[string]struct {
		meanwhile func(s *locktest.Sim, later bool) error
		writes    int
	}{
		"nothing happens": {func(*locktest.Sim, bool) error { return nil }, 1},
		"another client writes the run": {func(s *locktest.Sim, later bool) error {
			if later {
				return s.Server.SetData(node, anothers)
			}
			return s.Server.Create(node, anothers)
		}, 2},
		"another client deletes the record": {func(s *locktest.Sim, _ bool) error {
			return s.Server.DeleteAll(record)
		}, 2},
		"the reply to the write is lost": {func(s *locktest.Sim, _ bool) error {
			s.Server.Inject(written(fault.CloseAfter()).Once())
			return nil
		}, 2},
		"the write is lost": {func(s *locktest.Sim, _ bool) error {
			s.Server.Inject(written(fault.CloseBefore()).Once())
			return nil
		}, 2},
	} {
		for when, later := range map[string]bool{"the first run": false, "a later run": true} {
			t.Run(name+", "+when, func(t *testing.T) {
				locktest.SimulateAlone(t, func(s *locktest.Sim) {
					s.Server.Inject(written(fault.Answer(fault.CodeNoAuth)).After(bound))
					j := s.Client().Job("/jobs/nightly")
					if later {
						require.NoError(s, every(s.Context(), j, time.Second, new(job).run))
						time.Sleep(time.Minute)
					}
					var writes *zktest.Injection
					run, err := j.Every(s.Context(), time.Second, func(context.Context) error {
						writes = s.Server.Inject(written(fault.Delay(0)))
						return c.meanwhile(s, later)
					})
					require.NoError(s, err)
					require.True(s, run.Mine)
					require.Equal(s, c.writes, writes.Hits())
					run.Mine = false
					require.Equal(s, []zklock.JobRun{run}, runsOf(s, j))
				})
			})
		}
	}
}

// A server in trouble answers each write of a run after the function has been called, and carries
// out none. The writes are bounded here, so that a call that repeats them fails.
func TestARunWhoseEndIsAnsweredWithTroubleIsNotWrittenAgain(t *testing.T) {
	for name, atMostOnce := range map[string]bool{"Once": false, "AtMostOnce": true} {
		t.Run(name, func(t *testing.T) {
			locktest.SimulateAlone(t, func(s *locktest.Sim) {
				j := s.Client().Job("/jobs/nightly")
				if atMostOnce {
					j = j.AtMostOnce()
				}
				var trouble *zktest.Injection
				err := once(s.Context(), j, "k", func(context.Context) error {
					trouble = s.Server.Inject(onRecord(fault.Answer(-1)).Times(20))
					return nil
				})
				require.Equal(s, 1, trouble.Hits())
				if atMostOnce {
					require.NoError(s, err)
					return
				}
				require.ErrorIs(s, err, zklock.ErrNotRecorded)
				require.ErrorIs(s, err, zklock.ErrUnknownOutcome)
			})
		})
	}
}
