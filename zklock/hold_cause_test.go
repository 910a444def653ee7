package zklock_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/session"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// held is a mutex that one client holds.
type held struct {
	srv    *zktest.Server
	client *zklock.Client
	ctx    context.Context
	hold   *zklock.Hold
}

// Scenario 89. Whatever ends a hold, and however its holder notices that, the holder is told what
// has happened. In particular the end of the session is nobody's deletion.
func TestEachEndOfAHoldIsToldAsWhatItIs(t *testing.T) {
	ends := map[string]struct {
		end  func(t *testing.T, h held)
		is   []error
		none []error
	}{
		"the ensemble ends the session": {
			func(t *testing.T, h held) {
				require.NoError(t, h.srv.Expire(h.client.SessionStatus().ID))
			},
			[]error{zklock.ErrSessionExpired, zklock.ErrLost},
			[]error{zklock.ErrNodeDeleted, zklock.ErrUnlocked},
		},
		"nothing is heard any more": {
			func(_ *testing.T, h held) { h.srv.Leader().Down() },
			[]error{zklock.ErrLeaseExpired, zklock.ErrLost},
			[]error{zklock.ErrNodeDeleted, zklock.ErrSessionExpired},
		},
		"another client deletes the znode": {
			func(t *testing.T, h held) { require.NoError(t, h.srv.Delete(h.hold.Node())) },
			[]error{zklock.ErrNodeDeleted, zklock.ErrLost},
			[]error{zklock.ErrSessionExpired, zklock.ErrLeaseExpired},
		},
		"the client is closed": {
			func(t *testing.T, h held) { require.NoError(t, h.client.Close()) },
			[]error{zklock.ErrClosed}, []error{zklock.ErrLost, zklock.ErrUnlocked},
		},
		"the longest time is over": {
			func(*testing.T, held) { time.Sleep(2 * time.Hour) },
			[]error{zklock.ErrMaxHold, zklock.ErrLost},
			[]error{zklock.ErrNodeDeleted, zklock.ErrUnlocked},
		},
	}
	notices := map[string]func(t *testing.T, h held) error{
		"by its context": func(_ *testing.T, h held) error {
			<-h.ctx.Done()
			return context.Cause(h.ctx)
		},
		"by Err": func(_ *testing.T, h held) error {
			<-h.hold.Context().Done()
			return h.hold.Err()
		},
		"by a check at once": func(t *testing.T, h held) error {
			return h.hold.Check(locktest.Within(t, time.Minute))
		},
		"by a write": func(t *testing.T, h held) error {
			<-h.hold.Context().Done()
			_, err := h.hold.Multi(locktest.Within(t, time.Minute),
				session.OpCheck{Path: "/", Version: -1})
			return err
		},
		"by its release": func(_ *testing.T, h held) error {
			<-h.ctx.Done()
			return h.hold.Unlock()
		},
	}
	for end, e := range ends {
		for notice, noticed := range notices {
			for _, lasted := range []time.Duration{0, 200 * time.Millisecond, time.Second,
				time.Minute} {
				t.Run(end+", "+notice+", after "+lasted.String(), func(t *testing.T) {
					locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
						lost := make(chan error, 1)
						client := locktest.Dial(t, srv, zklock.WithHooks(zklock.Hooks{
							Lost: func(i zklock.LockInfo) { lost <- i.Err },
						}))
						ctx, hold, err := client.Mutex("/l",
							zklock.WithMaxHold(time.Hour)).Lock(t.Context())
						require.NoError(t, err)
						h := held{srv, client, ctx, hold}
						time.Sleep(lasted)

						e.end(t, h)
						told := map[string]error{"noticed": noticed(t, h), "the hook": <-lost,
							"Err": hold.Err()}

						for by, err := range told {
							for _, is := range e.is {
								require.ErrorIs(t, err, is, by)
							}
							for _, none := range e.none {
								require.NotErrorIs(t, err, none, by)
							}
						}
						srv.Leader().Up()
					})
				})
			}
		}
	}
}

// A session may have a thousand holds, and a hook of the user's may take its time. So the end of
// the session ends the works of all of them, and what was derived from these, before it reports a
// loss. Each work's cause is the loss, also if the caller cancels his own context as soon as he
// notices.
func TestASessionsEndEndsAllWorksBeforeItReportsALoss(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		const locks = 30
		var works []context.Context
		goesOn := make(chan int, locks)
		client := locktest.Dial(t, srv, zklock.WithHooks(zklock.Hooks{
			Lost: func(zklock.LockInfo) {
				n := 0
				for _, work := range works {
					select {
					case <-work.Done():
					default:
						n++
					}
				}
				goesOn <- n
			},
		}))
		var holds []*zklock.Hold
		for i := range locks {
			ctx, cancel := context.WithCancel(t.Context())
			work, hold, err := client.Mutex("/l" + strconv.Itoa(i)).Lock(ctx)
			require.NoError(t, err)
			context.AfterFunc(hold.Context(), cancel)
			child, stop := context.WithTimeout(work, time.Hour)
			defer stop()
			works, holds = append(works, work, child), append(holds, hold)
		}

		require.NoError(t, srv.Expire(client.SessionStatus().ID))

		for range locks {
			require.Zero(t, <-goesOn)
		}
		for i, work := range works {
			require.ErrorIs(t, context.Cause(work), zklock.ErrSessionExpired)
			require.Equal(t, holds[i/2].Err(), context.Cause(work))
		}
	})
}
