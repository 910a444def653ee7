package zklock_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest/fault"
)

// What scripts can say of observers, of work that is done under a lock, and of requests.

// observe follows an election, and says what it sees.
func (a scriptArgs) observe() string {
	e, name := a.election(), a.word(0)
	a.start(a, a.words[1:2], func(ctx context.Context) (context.Context, *zklock.Hold, error) {
		for l, err := range e.Observe(ctx) {
			switch {
			case err == nil:
				a.say("%s sees %s", name, l.Value)
			case errors.Is(err, zklock.ErrNoLeader):
				a.say("%s sees no leader", name)
			default:
				return ctx, nil, err
			}
		}
		return ctx, nil, nil
	})
	return ""
}

// run has Election.Run lead. What it leads with works on, if it is slow, when its term has ended.
func (a scriptArgs) run() string {
	e, name, slow, fails := a.election(), a.word(0), a.time("slow"), a.option("fails") != ""
	value := strings.Join(a.words[2:], " ")
	a.start(a, a.words[1:2], func(ctx context.Context) (context.Context, *zklock.Hold, error) {
		err := e.Run(ctx, []byte(value), func(work context.Context, term *zklock.Hold) error {
			c := a.working(name, work, term, "leads")
			select {
			case <-work.Done():
				a.told(c, term)
			case <-c.finish:
			}
			time.Sleep(slow)
			a.say("%s works no more", name)
			if fails {
				return errors.New("the work's own error")
			}
			return work.Err()
		})
		a.rests(name)
		return ctx, nil, err
	})
	return ""
}

// job has a call run a job.
func (a scriptArgs) job(
	call func(context.Context, *zklock.Job, func(context.Context) error) (zklock.JobRun, error),
) string {
	a.Helper()
	name, dir, takes, fails := a.word(0), a.word(1), a.time("takes"), a.option("fails") != ""
	most := a.option("at-most") == "once"
	j := a.client(name).Job(dir, a.lockOptions()...)
	if most {
		j = j.AtMostOnce()
	}
	said := a.start(a, a.words[1:2],
		func(ctx context.Context) (context.Context, *zklock.Hold, error) {
			run, err := call(ctx, j, func(work context.Context) error {
				h, _ := zklock.HoldFrom(work, dir)
				c := a.working(name, work, h, "runs the job")
				a.mu.Lock()
				c.checked = true // no check: it may have lost its znode when the line is over
				a.mu.Unlock()
				time.Sleep(takes)
				if fails {
					return errors.New("the work's own error")
				}
				return nil
			})
			if err == nil && !run.Mine {
				err = errors.New("it was done before")
			}
			a.rests(name)
			if errors.Is(err, zklock.ErrLost) {
				err = lostJob{err}
			}
			return ctx, nil, err
		})
	if a.calls[name].hold != nil {
		return "" // it says that it runs
	}
	return said
}

// lostJob is an error of a lost run. Which of two causes of the loss was noticed first, and that
// there was no server, is chance then, and is left out.
type lostJob struct{ error }

func (e lostJob) Is(target error) bool {
	chance := target == zklock.ErrUnreachable || target == zklock.ErrNodeDeleted ||
		target == zklock.ErrSessionExpired
	return !chance && errors.Is(e.error, target) //nolint:errorlint // that error itself
}

// working notes that a call works under h.
func (st *stage) working(
	name string, inside context.Context, h *zklock.Hold, as string,
) *scriptCall {
	st.mu.Lock()
	c := st.calls[name]
	st.mu.Unlock()
	st.holds(c, inside, h, as)
	return c
}

// rests notes that a call works no more.
func (st *stage) rests(name string) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.calls[name].hold = nil
}

// runs says which runs of a job are recorded.
func (a scriptArgs) runs() string {
	var keys []string
	for run, err := range a.client(a.word(0)).Job(a.word(1)).Runs(a.Context()) {
		if err != nil {
			return errorNames(err)
		}
		keys = append(keys, cmp.Or(run.Key, "by time"))
	}
	slices.Sort(keys)
	return "recorded: " + cmp.Or(strings.Join(keys, ", "), "nothing")
}

func (a scriptArgs) forget() string {
	j := a.client(a.word(0)).Job(a.word(1))
	found, err := false, error(nil)
	if len(a.words) > 2 {
		found, err = j.Forget(a.Context(), a.word(2))
	} else {
		found, err = j.ForgetLast(a.Context())
	}
	if err != nil {
		return "forget: " + errorNames(err)
	}
	return map[bool]string{true: "forgotten", false: "nothing to forget"}[found]
}

// forgetBefore has a call forget what began before so long ago.
func (a scriptArgs) forgetBefore() string {
	name, before := a.word(0), time.Now().Add(-a.duration(a.word(2)))
	j := a.client(name).Job(a.word(1))
	return a.start(a, a.words[1:2],
		func(ctx context.Context) (context.Context, *zklock.Hold, error) {
			n, err := j.ForgetBefore(ctx, before)
			a.say("%s forgets %d", name, n)
			return ctx, nil, err
		})
}

// notified says which clients have been sent events, and how many, since that was last asked.
func (st *stage) notified() string {
	var all []string
	for _, name := range st.names() {
		n := st.Notified(st.clients[name].SessionID())
		if since := n - st.heard[name]; since > 0 {
			all = append(all, fmt.Sprintf("%d to %s", since, name))
		}
		st.heard[name] = n
	}
	return "events: " + cmp.Or(strings.Join(all, ", "), "none")
}

// requested says what has been requested since that was last asked, apart from what keeps sessions.
func (st *stage) requested() string {
	var all []string
	now := st.Server.Requests()
	keep := []fault.Op{fault.OpPing, fault.OpConnect, fault.OpCloseSession}
	for _, op := range slices.Sorted(maps.Keys(now)) {
		if since := now[op] - st.since[op]; since > 0 && !slices.Contains(keep, op) {
			all = append(all, fmt.Sprintf("%d %v", since, op))
		}
	}
	st.since = now
	return "requests: " + cmp.Or(strings.Join(all, ", "), "none")
}

// stranger is a session of another program.
func (st *stage) stranger() *session.Session {
	st.Helper()
	if st.other == nil || st.other.Err() != nil {
		st.other = st.Stranger()
	}
	return st.other
}

// time takes an option that is a duration; 0 if it is not given.
func (a scriptArgs) time(key string) time.Duration {
	a.Helper()
	if d := a.option(key); d != "" {
		return a.duration(d)
	}
	return 0
}

// garbledLeader makes a reply's body unreadable and leaves its header alone.
func garbledLeader() fault.Fault {
	return fault.Garble(func(reply []byte) []byte {
		return append(reply[:16:16], 0x7f, 0xff, 0xff, 0xff)
	})
}
