package zklock_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest/fault"
)

const record = "/jobs/nightly.done"

// job counts its runs.
type job struct{ runs atomic.Int32 }

func (j *job) run(context.Context) error { j.runs.Add(1); return nil }

// errDone is for a job that was done before, which is no error.
var errDone = errors.New("done before")

// once is Job.Once.
func once(ctx context.Context, j *zklock.Job, key string, fn func(context.Context) error) error {
	run, err := j.Once(ctx, key, fn)
	return doneBefore(run, err)
}

// every is Job.Every.
func every(ctx context.Context, j *zklock.Job, d time.Duration, fn func(context.Context) error) error {
	run, err := j.Every(ctx, d, fn)
	return doneBefore(run, err)
}

func doneBefore(run zklock.JobRun, err error) error {
	if err == nil && !run.Mine {
		return errDone
	}
	return err
}

// runsOf returns the runs in the record, the oldest first.
func runsOf(s *locktest.Sim, j *zklock.Job) (runs []zklock.JobRun) {
	s.Helper()
	for run, err := range j.Runs(s.Context()) {
		require.NoError(s, err)
		require.False(s, run.Mine)
		runs = append(runs, run)
	}
	slices.SortFunc(runs, func(a, b zklock.JobRun) int { return cmp.Compare(a.Token, b.Token) })
	return runs
}

// keyNode is the path of a key's run.
func keyNode(s *locktest.Sim, record, key string) string {
	s.Helper()
	for path := range s.Server.Nodes() {
		if strings.HasPrefix(path, record+"/") && strings.HasSuffix(path, "/"+key) {
			return path
		}
	}
	s.Fatalf("the run of %s is not recorded", key)
	return ""
}

// Scenario 68: cron on many hosts starts one job, by clocks that differ, and one host waits for hours. The job runs once a
// period, and each of the other hosts is told which one has run it.
func TestScenario68_AJobThatManyHostsStartRunsOnceAPeriod(t *testing.T) {
	for name, start := range map[string]func(j *zklock.Job, day int, fn func(context.Context) error) (zklock.JobRun, error){
		"by a key": func(j *zklock.Job, day int, fn func(context.Context) error) (zklock.JobRun, error) {
			return j.Once(context.Background(), fmt.Sprintf("2026-11-%02d", day), fn)
		},
		"by time": func(j *zklock.Job, _ int, fn func(context.Context) error) (zklock.JobRun, error) {
			return j.Every(context.Background(), 20*time.Minute, fn)
		},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				const hosts, days = 7, 3
				var job job
				begun := time.Now()
				for day := range days {
					var all sync.WaitGroup
					var mine atomic.Int32
					tick := begun.Add(time.Duration(day) * 24 * time.Minute)
					for host := range hosts {
						c := s.Client(zklock.WithSessionTimeout(time.Hour)) // few heartbeats
						late := time.Duration(host) * 300 * time.Millisecond
						if host == hosts-1 {
							late = 12 * time.Minute
						}
						all.Go(func() {
							time.Sleep(time.Until(tick.Add(late)))
							run, err := start(c.Job("/jobs/nightly", zklock.WithOwner("nightly")), day+1, func(ctx context.Context) error {
								time.Sleep(time.Second)
								return job.run(ctx)
							})
							assert.NoError(s, err)
							assert.Equal(s, "nightly", run.Owner)
							assert.WithinDuration(s, tick, run.Began, time.Second)
							if run.Mine {
								mine.Add(1)
							}
						})
					}
					all.Wait()
					require.EqualValues(s, 1, mine.Load(), "day %d", day)
				}
				require.EqualValues(s, days, job.runs.Load())
				runs := runsOf(s, s.Client().Job("/jobs/nightly"))
				if name == "by time" {
					runs = append(make([]zklock.JobRun, days-1), runs...)
				}
				require.Len(s, runs, days)
				require.Regexp(s, `by nightly \(.*:\d+\), begun 20\S+Z, token \d+$`, runs[days-1])
			})
		})
	}
}

// Scenario 79: a run takes longer than the period, and the hosts that were started by the same tick wait for its end. None
// of them runs the job again.
func TestScenario79_AJobLongerThanItsPeriodRunsOnceForATick(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		var job job
		for tick := range 3 {
			var all sync.WaitGroup
			for host := range 3 {
				c := s.Client()
				all.Go(func() {
					time.Sleep(time.Duration(host) * 100 * time.Millisecond)
					_, err := c.Job("/jobs/nightly").Every(s.Context(), 50*time.Second, func(ctx context.Context) error {
						time.Sleep(2 * time.Minute)
						return job.run(ctx)
					})
					assert.NoError(s, err)
				})
			}
			all.Wait()
			require.EqualValues(s, tick+1, job.runs.Load(), "the next tick comes when the last run is over")
		}
	})
}

// Scenario 79: nothing is forgotten by count, whatever else the record has to keep.
func TestScenario79_NoKeyIsForgottenByCount(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		j := s.Client().Job("/jobs/nightly")
		const keys = 1100
		for i := range keys {
			require.NoError(s, once(s.Context(), j, fmt.Sprintf("%03d-index", i), new(job).run))
			if i%100 == 0 {
				time.Sleep(time.Second)
				require.NoError(s, every(s.Context(), j, time.Second, new(job).run))
			}
		}
		for i := range keys {
			require.Equal(s, errDone, once(s.Context(), j, fmt.Sprintf("%03d-index", i), neverRun))
		}
		require.Len(s, runsOf(s, j), keys+1)
		require.LessOrEqual(s, len(s.Server.Children(record)), 257)
		for run, err := range j.Runs(s.Context()) {
			require.NoError(s, err)
			require.NotEmpty(s, run.Host)
			break // the caller may stop
		}
	})
}

// Many hosts work through the same keys while connections break and sessions expire: each key is recorded once, and none is
// run after it was recorded.
func TestHostsThatShareKeysRunNoneThatIsRecordedInSpiteOfFaults(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		hosts, keys := 8, 60
		if locktest.Long() {
			hosts, keys = 20, 10_000
		}
		var all sync.WaitGroup
		var mu sync.Mutex
		done := map[string]bool{}
		ran := 0
		for i, f := range []fault.Fault{fault.CloseAfter(), fault.CloseBefore(), fault.ExpireSession()} {
			for n := 1 + 2*i; n < keys; n += max(7, keys/50) { // a write that is repeated is the next one
				s.Server.Inject(onRecord(f).Nth(n))
			}
		}
		for host := range hosts {
			j := s.Client().Job("/jobs/nightly")
			all.Go(func() {
				for i := range keys {
					key := fmt.Sprintf("k%02d", (i+host*3)%keys)
					for {
						run, err := j.Once(s.Context(), key, func(context.Context) error {
							mu.Lock()
							defer mu.Unlock()
							ran++
							assert.False(s, done[key], "%s is run after it was recorded", key)
							return nil
						})
						if err == nil {
							assert.Equal(s, key, run.Key)
							mu.Lock()
							done[key] = true
							mu.Unlock()
							break
						}
						assert.True(s, errors.Is(err, zklock.ErrLost) || errors.Is(err, zklock.ErrUnknownOutcome), "%v", err)
					}
				}
			})
		}
		all.Wait()
		require.Len(s, runsOf(s, s.Client().Job("/jobs/nightly")), keys)
		require.Greater(s, ran, keys, "some were run again, since their record failed")
		require.Less(s, ran, 2*keys)
	})
}

// killHost ends the session of a client.
func killHost(s *locktest.Sim, c *locktest.Client) {
	require.NoError(s, s.Server.Expire(c.SessionID()))
	synctest.Wait()
}

// onRecord restricts a fault to the writes of keys' runs.
func onRecord(f fault.Fault) fault.Fault { return f.Op(fault.OpMulti).Path(record + "/*/*") }

// hostEnds are the ways in which the host that runs a job may fail.
var hostEnds = map[string]struct {
	before      func(s *locktest.Sim, c *locktest.Client)
	during      func(s *locktest.Sim, c *locktest.Client)
	least, most int32 // number of runs in all, when another host tries again
	lost        bool  // the first host is told of a loss
}{
	"nothing happens": {least: 1, most: 1},
	"before the function": {before: func(s *locktest.Sim, c *locktest.Client) {
		s.Server.Inject(fault.ExpireSession().Op(fault.OpGetData).Path(record).Session(c.SessionID()).Once())
	}, least: 1, most: 1, lost: true},
	"during the function": {during: killHost, least: 2, most: 1, lost: true},
	"behind the function, before the record": {during: func(s *locktest.Sim, c *locktest.Client) {
		s.Server.Inject(onRecord(fault.ExpireSession()).Session(c.SessionID()).Once())
	}, least: 2, most: 1, lost: true},
	"the znode is removed, and the host does not hear of it": {during: func(s *locktest.Sim, c *locktest.Client) {
		s.Server.Inject(fault.DropReply().Op(fault.OpNotify).Session(c.SessionID()))
		for _, name := range s.Server.Children("/jobs/nightly") {
			require.NoError(s, s.Server.Delete("/jobs/nightly/"+name))
		}
	}, least: 2, most: 1, lost: true},
	"the record's reply is lost": {during: func(s *locktest.Sim, c *locktest.Client) {
		s.Server.Inject(onRecord(fault.CloseAfter()).Session(c.SessionID()).Once())
	}, least: 1, most: 1},
	"the record's request is lost": {during: func(s *locktest.Sim, c *locktest.Client) {
		s.Server.Inject(onRecord(fault.CloseBefore()).Session(c.SessionID()).Once())
	}, least: 1, most: 1},
	"every reply is lost once": {before: func(s *locktest.Sim, c *locktest.Client) {
		s.Server.Inject(onRecord(fault.CloseAfter()).Session(c.SessionID()).Times(3))
	}, least: 1, most: 1},
	"the host hears nothing any more, and its record arrived": {during: func(s *locktest.Sim, c *locktest.Client) {
		s.Server.Inject(fault.FreezeReplies().Session(c.SessionID()))
	}, least: 1, most: 1, lost: true},
}

// After a crash at any point, "at least once" makes the run again unless it was recorded, and "at most once" never makes it
// twice.
func TestAOnceWhoseHostDiesIsRunAgainOrNeverAsItWasAskedFor(t *testing.T) {
	for name, k := range hostEnds {
		for _, atMostOnce := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, at most once: %v", name, atMostOnce), func(t *testing.T) {
				locktest.Simulate(t, func(s *locktest.Sim) {
					nightly := func(c *locktest.Client) *zklock.Job { return c.Job("/jobs/nightly") }
					want := k.least
					if atMostOnce {
						nightly = func(c *locktest.Client) *zklock.Job { return c.Job("/jobs/nightly").AtMostOnce() }
						want = k.most
					}
					c := s.Client()
					if k.before != nil {
						k.before(s, c)
					}
					var job job
					err := once(s.Context(), nightly(c), "k", func(ctx context.Context) error {
						if k.during != nil {
							k.during(s, c)
						}
						return job.run(ctx)
					})
					if k.lost {
						require.ErrorIs(s, err, zklock.ErrLost)
						require.Equal(s, job.runs.Load() == 0, errors.Is(err, zklock.ErrNotRun), "%v", err)
					} else {
						require.NoError(s, err)
					}
					for range 2 {
						err := once(s.Context(), nightly(s.Client()), "k", job.run)
						if err != nil {
							require.ErrorIs(s, err, errDone)
						}
					}
					require.Equal(s, want, job.runs.Load())
					require.Len(s, runsOf(s, s.Client().Job("/jobs/nightly")), 1, "a run is recorded once")
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
			require.Equal(s, errWork, once(s.Context(), c.Job("/jobs/least"), "k", fail), "as it is")
		}
		require.Equal(s, 2, calls)

		most := c.Job("/jobs/most").AtMostOnce()
		require.Equal(s, errWork, once(s.Context(), most, "k", fail))
		require.ErrorIs(s, once(s.Context(), most, "k", fail), errDone)
		require.Equal(s, 3, calls)

		require.Panics(s, func() {
			_ = once(s.Context(), c.Job("/jobs/least"), "k", func(context.Context) error { panic("the work's own") })
		})
		require.NoError(s, once(s.Context(), c.Job("/jobs/least"), "k", new(job).run), "the lock is free, nothing is recorded")
	})
}

func TestWorkThatIsDoneIsRecordedAlsoWhenItsContextIsOver(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		ctx, cancel := context.WithCancel(s.Context())
		require.NoError(s, once(ctx, c.Job("/jobs/nightly"), "k", func(context.Context) error { cancel(); return nil }))
		require.ErrorIs(s, once(s.Context(), c.Job("/jobs/nightly"), "k", neverRun), errDone)
	})
}

func TestEveryCountsFromTheBeginningOfTheLastRunByTheEnsemblesClock(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c, other := s.Client(zklock.WithSessionTimeout(time.Hour)), s.Client(zklock.WithSessionTimeout(time.Hour))
		o := c.Job("/jobs/nightly")
		began := time.Now()
		require.NoError(s, every(s.Context(), o, time.Hour, func(context.Context) error { time.Sleep(50 * time.Minute); return nil }))
		time.Sleep(time.Until(began.Add(59 * time.Minute)))
		run, err := o.Every(s.Context(), time.Hour, neverRun)
		require.NoError(s, err)
		require.WithinDuration(s, began, run.Began, time.Second)

		// A call's time is that at which it queued, however long it waits.
		hold := s.Lock(other.Mutex("/jobs/nightly"))
		got := make(chan error, 1)
		go func() { got <- every(s.Context(), o, time.Hour, neverRun) }()
		time.Sleep(2 * time.Hour)
		s.Unlock(hold)
		require.Equal(s, errDone, <-got)
		require.NoError(s, every(s.Context(), o, time.Hour, new(job).run))
		require.Equal(s, errDone, every(s.Context(), o, time.Hour, neverRun))

		time.Sleep(time.Second)
		require.EqualError(s, every(s.Context(), o, time.Second, func(context.Context) error { return errors.New("failed") }), "failed")
		runs := runsOf(s, o)
		require.Len(s, runs, 1)
		require.WithinDuration(s, time.Now(), runs[0].Began, 2*time.Second, "what failed is not counted")
	})
}

// The record remains when the lock's directory is deleted, since it is no child of it.
func TestARecordOutlivesTheLocksDirectory(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		o := c.Job("/jobs/nightly", zklock.WithContainer())
		require.NoError(s, once(s.Context(), o, "k", func(context.Context) error {
			require.Len(s, s.Server.Children("/jobs/nightly"), 1, "contenders only")
			return nil
		}))
		time.Sleep(5 * time.Minute)
		_, there := s.Server.Node("/jobs/nightly")
		require.False(s, there, "a container, which nobody has used")
		require.ErrorIs(s, once(s.Context(), o, "k", neverRun), errDone)

		plain := c.Job("/jobs/nightly")
		require.NoError(s, once(s.Context(), plain, "l", new(job).run))
		before, _ := s.Server.Node("/jobs/nightly")
		require.NoError(s, s.Server.SetSequence("/jobs/nightly", 1<<30))
		require.NoError(s, once(s.Context(), plain, "m", new(job).run))
		synctest.Wait()
		after, _ := s.Server.Node("/jobs/nightly")
		require.Greater(s, after.Stat.Czxid, before.Stat.Czxid, "the directory was made again")
		for _, key := range []string{"k", "l", "m"} {
			require.ErrorIs(s, once(s.Context(), plain, key, neverRun), errDone, key)
		}

		require.NoError(s, s.Server.DeleteAll(record))
		require.NoError(s, once(s.Context(), plain, "k", new(job).run), "whoever deletes the record frees the job")
	})
}

func TestAKeyIsBusyWhileAnotherHolds(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		hold := s.Lock(c.Mutex("/jobs/nightly"))
		for _, wait := range []time.Duration{0, time.Second} {
			j := c.Job("/jobs/nightly", zklock.WithMaxWait(wait))
			require.ErrorIs(s, once(s.Context(), j, "l", neverRun), zklock.ErrBusy)
		}
		s.Unlock(hold)
	})
}

func TestARecordThatWasMadeForItIsUsed(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		require.NoError(s, s.Server.Create("/jobs", nil))
		require.NoError(s, s.Server.Create(record, nil))
		c := s.Client()
		j := c.Job("/jobs/nightly")
		require.Empty(s, runsOf(s, j))
		require.NoError(s, once(s.Context(), j, "k", new(job).run))
		h := s.Lock(c.Mutex(record)) // whose contenders are beside the buckets
		require.NoError(s, once(s.Context(), j, "l", new(job).run))
		require.Len(s, runsOf(s, j), 2)
		s.Unlock(h)
	})
}

// What is not the record's is left as it is, wherever it stands.
func TestAnotherClientsDataInPlaceOfARecordAreRefused(t *testing.T) {
	for at, places := range map[string][]string{
		"the record": {"x", "zklock-job-2", `{"format":"zklock-once-1","runs":[]}`},
		"a bucket":   {"x"},
		"a run": {"", "x", "null", "[]", `{"key":"k","host":"h","pid":1,"token":0,"took_ms":1}`, `{"key":"k","host":"h","pid":1,"token":1,"took_ms":-1}`,
			`{"key":"k","host":"h","pid":1,"token":1,"took_ms":1} x`, `{"key":"k","host":"h","pid":1,"token":1,"took_ms":1,"more":1}`,
			`{"key":"\u001b[2J","host":"h","pid":1,"token":1,"took_ms":1}`, `{"key":"l","host":"h","pid":1,"token":1,"took_ms":1}`,
			strings.Repeat(" ", 5<<10)},
	} {
		for _, data := range places {
			locktest.Simulate(t, func(s *locktest.Sim) {
				j := s.Client().Job("/jobs/nightly")
				require.NoError(s, once(s.Context(), j, "k", new(job).run))
				require.NoError(s, every(s.Context(), j, time.Hour, new(job).run))
				node := keyNode(s, record, "k")
				errs := map[string]error{}
				switch at {
				case "the record":
					require.NoError(s, s.Server.DeleteAll(record))
					node = record
				case "a bucket":
					node = path.Dir(node)
					require.NoError(s, s.Server.DeleteAll(node))
				default:
					require.NoError(s, s.Server.Delete(node))
				}
				require.NoError(s, s.Server.Create(node, []byte(data)))
				errs["once"] = once(s.Context(), j, "k", neverRun)
				require.ErrorIs(s, errs["once"], zklock.ErrNotRun)
				if at == "the record" {
					errs["every"] = every(s.Context(), j, time.Hour, neverRun)
				}
				if at != "a bucket" { // which has no runs
					for _, err := range j.Runs(s.Context()) {
						errs["runs"] = err
					}
				}
				if at == "a run" {
					_, errs["forget"] = j.Forget(s.Context(), "k")
				}
				for call, err := range errs {
					if call == "runs" && strings.Contains(data, `"l"`) {
						continue // it is a run, if of another key
					}
					require.ErrorIs(s, err, zklock.ErrConflict, "%s: %s", call, data)
					require.ErrorContains(s, err, node)
				}
				now, _ := s.Server.Node(node)
				require.Equal(s, data, string(now.Data))
			})
		}
	}
}

func TestRunsAreForgottenByAge(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		j := s.Client().Job("/jobs/nightly")
		require.NoError(s, every(s.Context(), j, time.Hour, new(job).run))
		for i := range 30 {
			require.NoError(s, once(s.Context(), j, fmt.Sprintf("%02d", i), func(context.Context) error { time.Sleep(time.Minute); return nil }))
		}
		n, err := j.ForgetBefore(s.Context(), time.Now().Add(-10*time.Minute-30*time.Second))
		require.NoError(s, err)
		require.Equal(s, 20, n, "a run of a minute began a minute before it was recorded")
		require.Len(s, runsOf(s, j), 11, "of Every as well")
		require.NoError(s, once(s.Context(), j, "19", new(job).run))
		require.Equal(s, errDone, once(s.Context(), j, "20", neverRun))
		require.Equal(s, errDone, every(s.Context(), j, 40*time.Minute, neverRun))
		found, err := j.ForgetLast(s.Context())
		require.NoError(s, err)
		require.True(s, found)
		found, err = j.ForgetLast(s.Context())
		require.NoError(s, err)
		require.False(s, found)
		require.NoError(s, every(s.Context(), j, 40*time.Minute, new(job).run))
	})
}

func TestABadKeyPeriodOrPathOfAJobIsRefused(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		j := c.Job("/jobs/nightly")
		for _, key := range []string{"", "\xff", "a\nb", strings.Repeat("x", 129)} {
			err := once(s.Context(), j, key, neverRun)
			require.ErrorIs(s, err, zklock.ErrInvalid, "%q", key)
			require.ErrorIs(s, err, zklock.ErrNotRun)
			_, err = j.Forget(s.Context(), key)
			require.ErrorIs(s, err, zklock.ErrInvalid, "%q", key)
		}
		require.ErrorIs(s, every(s.Context(), j, 0, neverRun), zklock.ErrInvalid)
		require.ErrorIs(s, every(s.Context(), j, -time.Hour, neverRun), zklock.ErrInvalid)
		for _, path := range []string{"jobs", "/" + strings.Repeat("x", 3950)} {
			bad := c.Job(path)
			require.ErrorIs(s, once(s.Context(), bad, "k", neverRun), zklock.ErrPath)
			require.ErrorIs(s, every(s.Context(), bad, -1, neverRun), zklock.ErrPath)
			for _, err := range bad.Runs(s.Context()) {
				require.ErrorIs(s, err, zklock.ErrPath)
			}
			_, err := bad.Forget(s.Context(), "")
			require.ErrorIs(s, err, zklock.ErrPath)
			_, err = bad.ForgetLast(s.Context())
			require.ErrorIs(s, err, zklock.ErrPath)
			_, err = bad.ForgetBefore(s.Context(), time.Now())
			require.ErrorIs(s, err, zklock.ErrPath)
		}
		require.Empty(s, runsOf(s, j))

		// The longest key and owner that there can be.
		long := c.Job("/jobs/long", zklock.WithOwner(strings.Repeat("\U0001F512", 100)))
		key := strings.Repeat(`"`, 128)
		require.NoError(s, once(s.Context(), long, key, new(job).run))
		require.Equal(s, errDone, once(s.Context(), long, key, neverRun))
		require.Equal(s, key, runsOf(s, long)[0].Key)
	})
}

// neverRun is the function of a call that must not run it.
func neverRun(context.Context) error { panic("run") }
