package zklock_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
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
func every(
	ctx context.Context, j *zklock.Job, d time.Duration, fn func(context.Context) error,
) error {
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

// Tests of a Job; most are scripts: testdata/scripts/job.txt.

func TestARunSaysWhoHasMadeItAndWhen(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		began := time.Now()
		for i := range 2 {
			run, err := s.Client().Job("/jobs/nightly",
				zklock.WithOwner("nightly")).Once(s.Context(), "k", func(context.Context) error {
				time.Sleep(time.Second)
				return nil
			})
			require.NoError(s, err)
			require.Equal(s, i == 0, run.Mine)
			require.Equal(s, "nightly", run.Owner)
			require.WithinDuration(s, began, run.Began, 100*time.Millisecond)
			require.Regexp(s, `by nightly \(.*:\d+\), begun 20\S+Z, token \d+$`, run)
		}
	})
}

// An error of a function is that of this job's run, also if it is another job's.
func TestAnErrorOfAnotherJobIsNotTakenForThisOnes(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		err := once(s.Context(), s.Client().Job("/jobs/nightly"), "k", func(context.Context) error {
			return fmt.Errorf("a step: %w", zklock.ErrNotRecorded)
		})
		require.ErrorContains(s, err, "a step")
		require.NotErrorIs(s, err, zklock.ErrNotRecorded)
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

// onRecord restricts a fault to the writes of keys' runs.
func onRecord(f fault.Fault) fault.Fault { return f.Op(fault.OpMulti).Path(record + "/*/*") }

// What is not the record's is left as it is, wherever it stands.
func TestAnotherClientsDataInPlaceOfARecordAreRefused(t *testing.T) {
	for at, places := range map[string][]string{
		"the record": {"x", "zklock-job-2", `{"format":"zklock-once-1","runs":[]}`},
		"a bucket":   {"x"},
		"a run": {"", "x", "null", "[]", `{"key":"k","host":"h","pid":1,"token":0,"took_ms":1}`,
			`{"key":"k","host":"h","pid":1,"token":1,"took_ms":-1}`,
			`{"key":"k","host":"h","pid":1,"token":1,"took_ms":1} x`,
			`{"key":"k","host":"h","pid":1,"token":1,"took_ms":1,"more":1}`,
			`{"key":"\u001b[2J","host":"h","pid":1,"token":1,"took_ms":1}`,
			`{"key":"l","host":"h","pid":1,"token":1,"took_ms":1}`,
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
					if call == "runs" && len(data) > 4<<10 {
						require.ErrorContains(s, err, "it has 5120 bytes")
					}
				}
				now, _ := s.Server.Node(node)
				require.Equal(s, data, string(now.Data))
			})
		}
	}
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

// The write of the run is lost with its connection, and another client makes the run's znode, or
// deletes the record, before the write is repeated. What is then found must not be taken for this
// run.
func TestARunIsRecordedAlsoWhenAnotherClientHasChangedTheRecordMeanwhile(t *testing.T) {
	for name, change := range map[string]func(s *locktest.Sim, node string) error{
		"made the run's znode": func(s *locktest.Sim, node string) error {
			return s.Server.Create(node,
				[]byte(`{"key":"b","host":"another","pid":1,"token":1,"took_ms":0}`))
		},
		"deleted the record": func(s *locktest.Sim, _ string) error {
			return s.Server.DeleteAll(record)
		},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				c := s.Client()
				j := c.Job("/jobs/nightly")
				require.NoError(s, once(s.Context(), j, "b", new(job).run))
				node := keyNode(s, record, "b")
				_, err := j.Forget(s.Context(), "b")
				require.NoError(s, err)
				run, err := j.Once(s.Context(), "b", func(context.Context) error {
					s.Server.Inject(onRecord(fault.CloseBefore()).Session(c.SessionID()).Once())
					return change(s, node)
				})
				require.NoError(s, err)
				require.True(s, run.Mine)
				run.Mine = false
				require.Equal(s, []zklock.JobRun{run}, runsOf(s, j))
			})
		})
	}
}

func TestARecordThatCanNotBeWrittenIsFoundOutBeforeTheFunction(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		forAMutex := zklock.WithACL(zk.WorldACL(zk.PermRead | zk.PermCreate | zk.PermDelete)...)
		err := once(s.Context(), s.Client().Job("/jobs/nightly", forAMutex), "k", neverRun)
		require.ErrorIs(s, err, zk.ErrNoAuth)
		require.ErrorContains(s, err, "WithACL does not grant this client READ, WRITE and CREATE")
	})
}

func TestWhatIsNotARunToTheLetterIsAConflict(t *testing.T) {
	for i, data := range []string{
		`{"host":"h","pid":1,"token":1,"took_ms":1}}`,
		`{"host":"h","pid":1,"token":1,"took_ms":1}]somebody's`,
		`{"host":"h","pid":1,"token":1,"took_ms":9223372036854775807}`, `{"token":1}`,
		`{"TOKEN":1,"token":2,"host":"x","pid":-5,"took_ms":1}`,
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

func TestNothingIsFoundBelowAMissingChrootAndThatIsAnError(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c, err := zklock.Dial(s.Context(), s.Server.Addr()+"/misspelt",
			zklock.WithDialer(s.Server.Dial))
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
		require.NoError(s,
			once(s.Context(), s.Client().Job("/jobs/nightly").AtMostOnce(), "k", new(job).run))
		require.Less(s, time.Since(began), 10*time.Second)
	})
}

// neverRun is the function of a call that must not run it.
func neverRun(context.Context) error { panic("run") }
