package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

const record = "/jobs/nightly.done"

// job counts its runs.
type job struct{ runs atomic.Int32 }

func (j *job) run(context.Context) error { j.runs.Add(1); return nil }

// Scenario 68: cron on many hosts starts one job, by clocks that differ, and one host waits for hours. The job runs once a
// period, and each of the other hosts gets an error that says which one has run it.
func TestScenario68_AJobThatManyHostsStartRunsOnceAPeriod(t *testing.T) {
	for name, start := range map[string]func(o *zklock.Once, day int, fn func(context.Context) error) error{
		"by a key": func(o *zklock.Once, day int, fn func(context.Context) error) error {
			return o.Do(context.Background(), fmt.Sprintf("2026-11-%02d", day), fn)
		},
		"by time": func(o *zklock.Once, _ int, fn func(context.Context) error) error {
			return o.Every(context.Background(), 20*time.Minute, fn)
		},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				const hosts, days = 7, 3
				var job job
				begun := time.Now()
				for day := range days {
					var all sync.WaitGroup
					results := make(chan error, hosts)
					for host := range hosts {
						c := s.Client(zklock.WithSessionTimeout(time.Hour)) // few heartbeats
						late := time.Duration(host) * 300 * time.Millisecond
						if host == hosts-1 {
							late = 12 * time.Minute
						}
						all.Go(func() {
							time.Sleep(time.Until(begun.Add(time.Duration(day)*24*time.Minute + late)))
							results <- start(c.Once("/jobs/nightly", zklock.WithOwner("nightly")), day+1, func(ctx context.Context) error {
								time.Sleep(time.Second)
								return job.run(ctx)
							})
						})
					}
					all.Wait()
					close(results)
					ran := 0
					for err := range results {
						if err == nil {
							ran++
							continue
						}
						require.ErrorIs(s, err, zklock.ErrDone)
						require.ErrorIs(s, err, zklock.ErrNotRun)
						var done *zklock.DoneError
						require.ErrorAs(s, err, &done)
						require.Equal(s, "nightly", done.Owner)
						require.WithinDuration(s, begun.Add(time.Duration(day)*24*time.Minute), done.Began, time.Second)
						require.ErrorContains(s, err, "zklock: once /jobs/nightly: done already: ")
					}
					require.Equal(s, 1, ran, "day %d", day)
				}
				require.EqualValues(s, days, job.runs.Load())
				runs, err := s.Client().Once("/jobs/nightly").Runs(s.Context())
				require.NoError(s, err)
				require.Len(s, runs, days)
				require.Less(s, runs[0].Token, runs[1].Token)
			})
		})
	}
}

// killHost ends the session of a client.
func killHost(s *locktest.Sim, c *locktest.Client) {
	require.NoError(s, s.Server.Expire(c.SessionID()))
	synctest.Wait()
}

// onRecord restricts a fault to the writes of the record.
func onRecord(f zktest.Fault) zktest.Fault { return f.Op(zktest.OpMulti).Path(record) }

// hostEnds are the ways in which the host that runs a job may fail.
var hostEnds = map[string]struct {
	before          func(s *locktest.Sim, c *locktest.Client)
	during          func(s *locktest.Sim, c *locktest.Client)
	least, most     int32 // number of runs in all, when another host tries again
	lost, lostFirst bool  // the first host is told of a loss; lostFirst: with at most once as well
}{
	"nothing happens": {least: 1, most: 1},
	"before the function": {before: func(s *locktest.Sim, c *locktest.Client) {
		s.Server.Inject(onRecord(zktest.ExpireSession()).Session(c.SessionID()).After(1).Once()) // the first one makes the record
	}, least: 1, most: 1, lost: true, lostFirst: true},
	"during the function": {during: killHost, least: 2, most: 1, lost: true},
	"behind the function, before the record": {during: func(s *locktest.Sim, c *locktest.Client) {
		s.Server.Inject(onRecord(zktest.ExpireSession()).Session(c.SessionID()).Once())
	}, least: 2, most: 1, lost: true},
	"the znode is removed, and the host does not hear of it": {during: func(s *locktest.Sim, c *locktest.Client) {
		s.Server.Inject(zktest.DropReply().Op(zktest.OpNotify).Session(c.SessionID()))
		for _, name := range s.Server.Children("/jobs/nightly") {
			require.NoError(s, s.Server.Delete("/jobs/nightly/"+name))
		}
	}, least: 2, most: 1, lost: true, lostFirst: true},
	"the record's reply is lost": {during: func(s *locktest.Sim, c *locktest.Client) {
		s.Server.Inject(onRecord(zktest.CloseAfter()).Session(c.SessionID()).Once())
	}, least: 1, most: 1},
	"the record's request is lost": {during: func(s *locktest.Sim, c *locktest.Client) {
		s.Server.Inject(onRecord(zktest.CloseBefore()).Session(c.SessionID()).Once())
	}, least: 1, most: 1},
	"every reply is lost once": {before: func(s *locktest.Sim, c *locktest.Client) {
		s.Server.Inject(onRecord(zktest.CloseAfter()).Session(c.SessionID()).Times(3))
	}, least: 1, most: 1},
	"the host hears nothing any more, and its record arrived": {during: func(s *locktest.Sim, c *locktest.Client) {
		s.Server.Inject(zktest.FreezeReplies().Session(c.SessionID()))
	}, least: 1, most: 1, lost: true},
}

// After a crash at any point, "at least once" makes the run again unless it was recorded, and "at most once" never makes it
// twice.
func TestAOnceWhoseHostDiesIsRunAgainOrNeverAsItWasAskedFor(t *testing.T) {
	for name, k := range hostEnds {
		for _, atMostOnce := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, at most once: %v", name, atMostOnce), func(t *testing.T) {
				locktest.Simulate(t, func(s *locktest.Sim) {
					var opts []zklock.LockOption
					want, lost := k.least, k.lost
					if atMostOnce {
						opts, want, lost = append(opts, zklock.WithAtMostOnce()), k.most, k.lostFirst
					}
					c := s.Client()
					if k.before != nil {
						k.before(s, c)
					}
					var job job
					err := c.Once("/jobs/nightly", opts...).Do(s.Context(), "k", func(ctx context.Context) error {
						if k.during != nil {
							k.during(s, c)
						}
						return job.run(ctx)
					})
					if lost {
						require.ErrorIs(s, err, zklock.ErrLost)
						require.Equal(s, job.runs.Load() == 0, errors.Is(err, zklock.ErrNotRun), "%v", err)
					} else {
						require.NoError(s, err)
					}
					for range 2 {
						err := s.Client().Once("/jobs/nightly", opts...).Do(s.Context(), "k", job.run)
						if err != nil {
							require.ErrorIs(s, err, zklock.ErrDone)
						}
					}
					require.Equal(s, want, job.runs.Load())
					runs, err := s.Client().Once("/jobs/nightly").Runs(s.Context())
					require.NoError(s, err)
					require.Len(s, runs, 1, "a run is recorded once")
				})
			})
		}
	}
}

func TestAFunctionThatFailsIsCalledAgainUnlessItMayOnlyBeOnce(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c, errWork := s.Client(), errors.New("the work's own")
		calls := 0
		fail := func(context.Context) error { calls++; return errWork }
		for range 2 {
			require.Equal(s, errWork, c.Once("/jobs/least").Do(s.Context(), "k", fail), "as it is")
		}
		require.Equal(s, 2, calls)

		most := c.Once("/jobs/most", zklock.WithAtMostOnce())
		require.Equal(s, errWork, most.Do(s.Context(), "k", fail))
		require.ErrorIs(s, most.Do(s.Context(), "k", fail), zklock.ErrDone)
		require.Equal(s, 3, calls)

		require.Panics(s, func() {
			_ = c.Once("/jobs/least").Do(s.Context(), "k", func(context.Context) error { panic("the work's own") })
		})
		require.NoError(s, c.Once("/jobs/least").Do(s.Context(), "k", new(job).run), "the lock is free, nothing is recorded")
	})
}

func TestWorkThatIsDoneIsRecordedAlsoWhenItsContextIsOver(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		ctx, cancel := context.WithCancel(s.Context())
		require.NoError(s, c.Once("/jobs/nightly").Do(ctx, "k", func(context.Context) error { cancel(); return nil }))
		require.ErrorIs(s, c.Once("/jobs/nightly").Do(s.Context(), "k", neverRun), zklock.ErrDone)
	})
}

func TestEveryCountsFromTheBeginningOfTheLastRunByTheEnsemblesClock(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c, other := s.Client(zklock.WithSessionTimeout(time.Hour)), s.Client(zklock.WithSessionTimeout(time.Hour))
		o := c.Once("/jobs/nightly")
		began := time.Now()
		require.NoError(s, o.Every(s.Context(), time.Hour, func(context.Context) error { time.Sleep(50 * time.Minute); return nil }))
		time.Sleep(time.Until(began.Add(59 * time.Minute)))
		err := o.Every(s.Context(), time.Hour, neverRun)
		var done *zklock.DoneError
		require.ErrorAs(s, err, &done)
		require.WithinDuration(s, began.Add(time.Hour), done.Next, time.Second)

		// A call that comes too early and then waits for two hours is no longer too early.
		hold := s.Lock(other.Mutex("/jobs/nightly"))
		var job job
		got := make(chan error, 1)
		go func() { got <- o.Every(s.Context(), time.Hour, job.run) }()
		time.Sleep(2 * time.Hour)
		s.Unlock(hold)
		require.NoError(s, <-got)
		require.ErrorIs(s, o.Every(s.Context(), time.Hour, neverRun), zklock.ErrDone)

		time.Sleep(time.Second)
		require.EqualError(s, o.Every(s.Context(), time.Second, func(context.Context) error { return errors.New("failed") }), "failed")
		runs, err := o.Runs(s.Context())
		require.NoError(s, err)
		require.Len(s, runs, 2, "what failed is not counted")
	})
}

func TestALastRunInTheFutureIsNotLongAgo(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		require.NoError(s, c.Once("/jobs/nightly").Every(s.Context(), time.Hour, new(job).run))
		time.Sleep(time.Hour)
		require.NoError(s, c.Once("/jobs/nightly").Every(s.Context(), time.Hour, new(job).run))
		node, _ := s.Server.Node(record)
		ahead := strings.NewReplacer(fmt.Sprintf(`"began_ms":%d`, time.Now().UnixMilli()),
			fmt.Sprintf(`"began_ms":%d`, time.Now().Add(30*time.Minute).UnixMilli())).Replace(string(node.Data))
		require.NotEqual(s, ahead, string(node.Data))
		require.NoError(s, s.Server.SetData(record, []byte(ahead))) // as a leader would have whose clock was ahead
		err := c.Once("/jobs/nightly").Every(s.Context(), 2*time.Hour, neverRun)
		require.ErrorIs(s, err, zklock.ErrDone)
		var done *zklock.DoneError
		require.ErrorAs(s, err, &done)
		require.Equal(s, 30*time.Minute, done.Ahead, "the latest run counts")
		require.Equal(s, done.Began.Add(2*time.Hour), done.Next)
		require.ErrorContains(s, err, ", 30m0s ahead of the ensemble's clock, ")
		time.Sleep(31 * time.Minute)
		require.ErrorAs(s, c.Once("/jobs/nightly").Every(s.Context(), 2*time.Hour, neverRun), &done)
		require.Zero(s, done.Ahead, "the clock has caught up")
	})
}

// The record remains when the lock's directory is deleted, since it is no child of it.
func TestARecordOutlivesTheLocksDirectory(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		o := c.Once("/jobs/nightly", zklock.WithContainer())
		require.NoError(s, o.Do(s.Context(), "k", func(context.Context) error {
			require.Len(s, s.Server.Children("/jobs/nightly"), 1, "contenders only")
			return nil
		}))
		time.Sleep(5 * time.Minute)
		_, there := s.Server.Node("/jobs/nightly")
		require.False(s, there, "a container, which nobody has used")
		require.ErrorIs(s, o.Do(s.Context(), "k", neverRun), zklock.ErrDone)

		plain := c.Once("/jobs/nightly")
		require.NoError(s, plain.Do(s.Context(), "l", new(job).run))
		before, _ := s.Server.Node("/jobs/nightly")
		require.NoError(s, s.Server.SetSequence("/jobs/nightly", 1<<30))
		require.NoError(s, plain.Do(s.Context(), "m", new(job).run))
		synctest.Wait()
		after, _ := s.Server.Node("/jobs/nightly")
		require.Greater(s, after.Stat.Czxid, before.Stat.Czxid, "the directory was made again")
		for _, key := range []string{"k", "l", "m"} {
			require.ErrorIs(s, plain.Do(s.Context(), key, neverRun), zklock.ErrDone, key)
		}

		require.NoError(s, s.Server.Delete(record))
		require.NoError(s, plain.Do(s.Context(), "k", new(job).run), "whoever deletes the record frees the job")
	})
}

func TestAKeyThatIsDoneCostsOneRead(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		o := c.Once("/jobs/nightly")
		require.NoError(s, o.Do(s.Context(), "k", new(job).run))
		hold := s.Lock(c.Mutex("/jobs/nightly")) // also while somebody holds the lock
		synctest.Wait()
		before := s.Server.Requests()
		require.ErrorIs(s, o.Do(s.Context(), "k", neverRun), zklock.ErrDone)
		after := s.Server.Requests()
		for op, n := range after {
			want := before[op]
			if op == zktest.OpGetData {
				want++
			}
			require.Equal(s, want, n, "%v", op)
		}
		require.ErrorIs(s, c.Once("/jobs/nightly", zklock.WithWait(0)).Do(s.Context(), "l", neverRun), zklock.ErrBusy)
		require.ErrorIs(s, c.Once("/jobs/nightly", zklock.WithWait(time.Second)).Do(s.Context(), "l", neverRun), zklock.ErrBusy)
		s.Unlock(hold)
	})
}

func TestARecordKeepsTheLastRunsOnly(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		o := c.Once("/jobs/nightly", zklock.WithRemembered(3))
		for i := range 5 {
			require.NoError(s, o.Do(s.Context(), fmt.Sprint("k", i), new(job).run))
		}
		runs, err := o.Runs(s.Context())
		require.NoError(s, err)
		require.Len(s, runs, 3)
		require.Equal(s, "k2", runs[0].Key)
		require.NoError(s, o.Do(s.Context(), "k0", new(job).run), "forgotten")

		// The longest record that there can be is not too long for a server.
		big := c.Once("/jobs/big", zklock.WithRemembered(1000), zklock.WithOwner(strings.Repeat("\U0001F512", 100)))
		require.NoError(s, big.Do(s.Context(), strings.Repeat(`"`, 128), new(job).run))
		node, _ := s.Server.Node("/jobs/big.done")
		require.Less(s, 1000*len(node.Data), 1_000_000)
		require.ErrorIs(s, big.Do(s.Context(), strings.Repeat(`"`, 128), neverRun), zklock.ErrDone)
	})
}

func TestAnotherClientsDataInPlaceOfARecordAreRefused(t *testing.T) {
	for _, data := range []string{"x", "{}", "[]", "null", `{"format":"zklock-once-1","runs":[]} x`, `{"format":"zklock-once-2","runs":[]}`,
		`{"format":"zklock-once-1","runs":[{"host":"h","pid":1,"token":0,"began_ms":1}]}`, `{"format":"zklock-once-1","more":1,"runs":[]}`,
		`{"format":"zklock-once-1","runs":[{"key":"\u001b[2J","host":"h","pid":1,"token":1,"began_ms":1}]}`} {
		locktest.Simulate(t, func(s *locktest.Sim) {
			o := s.Client().Once("/jobs/nightly")
			require.NoError(s, s.Server.Create("/jobs", nil))
			require.NoError(s, s.Server.Create(record, []byte(data)))
			for _, err := range []error{o.Do(s.Context(), "k", neverRun), o.Every(s.Context(), time.Hour, neverRun)} {
				require.ErrorIs(s, err, zklock.ErrConflict, data)
				require.ErrorIs(s, err, zklock.ErrNotRun)
				require.ErrorContains(s, err, record+" is not a record of runs")
			}
			_, err := o.Runs(s.Context())
			require.ErrorIs(s, err, zklock.ErrConflict)
			node, _ := s.Server.Node(record)
			require.Equal(s, data, string(node.Data))
		})
	}
	locktest.Simulate(t, func(s *locktest.Sim) { // made for it, and empty
		require.NoError(s, s.Server.Create("/jobs", nil))
		require.NoError(s, s.Server.Create(record, nil))
		require.NoError(s, s.Client().Once("/jobs/nightly").Do(s.Context(), "k", new(job).run))
	})
}

func TestABadKeyPeriodOrOptionOfAOnceIsRefused(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		o := c.Once("/jobs/nightly")
		for _, key := range []string{"", "\xff", "a\nb", strings.Repeat("x", 129)} {
			err := o.Do(s.Context(), key, neverRun)
			require.ErrorIs(s, err, zklock.ErrOption, "%q", key)
			require.ErrorIs(s, err, zklock.ErrNotRun)
		}
		require.ErrorIs(s, o.Every(s.Context(), 0, neverRun), zklock.ErrOption)
		require.ErrorIs(s, o.Every(s.Context(), -time.Hour, neverRun), zklock.ErrOption)
		for _, n := range []int{0, -1, 1001} {
			require.ErrorIs(s, c.Once("/jobs/nightly", zklock.WithRemembered(n)).Do(s.Context(), "k", neverRun), zklock.ErrOption)
		}
		require.ErrorIs(s, c.Once("jobs").Do(s.Context(), "k", neverRun), zklock.ErrPath)
		require.ErrorIs(s, c.Once("jobs").Every(s.Context(), -1, neverRun), zklock.ErrPath)
		_, err := c.Once("jobs").Runs(s.Context())
		require.ErrorIs(s, err, zklock.ErrPath)
		for _, opt := range []zklock.LockOption{zklock.WithAtMostOnce(), zklock.WithRemembered(3)} {
			_, _, err := c.Mutex("/l", opt).Lock(s.Context())
			require.ErrorIs(s, err, zklock.ErrOption, "of a Once only")
		}
		runs, err := o.Runs(s.Context())
		require.NoError(s, err)
		require.Empty(s, runs)
	})
}

// neverRun is the function of a call that must not run it.
func neverRun(context.Context) error { panic("run") }
