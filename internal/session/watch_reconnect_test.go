package session_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

func TestAWatchSurvivesReconnections(t *testing.T) {
	for name, c := range map[string]struct {
		before bool // the znode existed when the watch was set
		change func(srv *zktest.Server) error
		event  zk.EventType
	}{
		"deleted meanwhile": {true, func(srv *zktest.Server) error {
			return srv.Delete("/x")
		}, zk.EventNodeDeleted},
		"changed meanwhile": {true, func(srv *zktest.Server) error {
			return srv.SetData("/x", nil)
		}, zk.EventNodeDataChanged},
		"created meanwhile": {false, func(srv *zktest.Server) error {
			return srv.Create("/x", nil)
		}, zk.EventNodeCreated},
		"deleted and made anew": {true, func(srv *zktest.Server) error {
			return errors.Join(srv.Delete("/x"), srv.Create("/x", nil))
		}, zk.EventNodeDataChanged},
		"nothing happened, then later": {true, nil, zk.EventNodeDeleted},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *zktest.Server) {
				if c.before {
					require.NoError(t, srv.Create("/x", nil))
				}
				s := open(t, srv)
				w := watch(t, s, "/x")
				require.Equal(t, c.before, w.Exists)
				for range 2 { // once without anything happening
					srv.DropConnections()
					time.Sleep(2 * time.Second)
					require.False(t, fired(w))
					require.Equal(t, 1, srv.WatchCount())
				}
				srv.Leader().Down()
				synctest.Wait()
				if c.change != nil {
					require.NoError(t, c.change(srv))
				}
				srv.Leader().Up()
				time.Sleep(2 * time.Second)
				if c.change == nil {
					require.False(t, fired(w))
					require.NoError(t, srv.Delete("/x"))
					synctest.Wait()
				}
				require.True(t, fired(w))
				require.Equal(t, c.event, w.Event())
				w.Close()
				requireNoWatches(t, srv, s)
			})
		})
	}
}

func TestThousandsOfWatchesSurviveAReconnection(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		// more than one setWatches request may hold
		long := func(i int) string { return fmt.Sprintf("/%0200d", i) }
		const n = 3000
		ws := make([]*session.Watch, n)
		for i := range ws {
			if i%2 == 0 {
				require.NoError(t, srv.Create(long(i), nil))
			}
			ws[i] = watch(t, s, long(i))
		}
		srv.DropConnections()
		time.Sleep(2 * time.Second)
		require.Equal(t, n, srv.WatchCount())
		require.Greater(t, srv.Requests()[fault.OpSetWatches], 2)
		for i, w := range ws {
			require.False(t, fired(w))
			if i%2 == 0 {
				require.NoError(t, srv.Delete(long(i)))
			} else {
				require.NoError(t, srv.Create(long(i), nil))
			}
		}
		synctest.Wait()
		for i, w := range ws {
			require.True(t, fired(w), "%d", i)
		}
		requireNoWatches(t, srv, s)
	})
}

func TestAWatchThatIsGivenUpWithoutAConnectionLeavesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		srv.Leader().Down()
		synctest.Wait()
		for i := range 50 {
			_, err := s.Watch(within(t, time.Millisecond), fmt.Sprintf("/x%d", i))
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		require.Zero(t, s.WatchedPaths(), "nobody waits for these")
		srv.Leader().Up()
		time.Sleep(time.Second)
		require.Zero(t, srv.Requests()[fault.OpExists], "and nobody asks for them")
		require.NoError(t, s.Close())
		_, err := s.Watch(within(t, soon), "/x")
		require.ErrorIs(t, err, session.ErrClosed)
		require.Zero(t, s.WatchedPaths())
	})
}

// Restoring many watches after a reconnection does not keep the session's mutex, which every reply
// and every heartbeat needs. A machine that stands still may delay one trial, not all of them.
func TestRestoringManyWatchesKeepsNoCallerFromTheSession(t *testing.T) {
	const watches, trials = 100_000, 10
	paths := make([]string, watches)
	for i := range paths {
		paths[i] = fmt.Sprint("/contender-", i)
	}
	r := session.NewRig()
	defer r.Stop()
	got := make(chan error, 1)
	go func() { _, err := r.WatchAll(context.Background(), paths...); got <- err }()
	require.NoError(t, answerUntil(t, r, got))
	for trial := 1; ; trial++ {
		r.Break(errors.New("the connection broke"))
		began, restored := time.Now(), make(chan struct{})
		go func() { r.Reconnect(); close(restored) }()
		longest := time.Duration(0)
		for done := false; !done; {
			asked := time.Now()
			r.ID() // which needs the mutex
			longest = max(longest, time.Since(asked))
			select {
			case <-restored:
				done = true
			default:
			}
		}
		took := time.Since(began)
		require.Greater(t, waiting(r), watches*len(paths[0])/(128<<10),
			"all are asked for, by some requests")
		for waiting(r) > 0 {
			require.NoError(t, r.Answer(0, nil))
			runtime.Gosched()
		}
		require.Equal(t, watches, r.WatchedPaths())
		if longest < took/4 {
			return
		}
		require.Less(t, trial, trials, "the mutex was held for %v of %v, in every trial", longest,
			took)
	}
}

// Watches that are requested while others are being restored are requested once, and none is
// forgotten.
func TestWatchesThatComeDuringARestorationAreAskedForOnce(t *testing.T) {
	r := session.NewRig()
	defer r.Stop()
	old := make([]string, 20_000)
	for i := range old {
		old[i] = fmt.Sprint("/old-", i)
	}
	got := make(chan error, 1)
	go func() { _, err := r.WatchAll(context.Background(), old...); got <- err }()
	require.NoError(t, answerUntil(t, r, got))
	r.Break(errors.New("the connection broke"))

	const late = 200
	all := make(chan error, late)
	began := make(chan struct{})
	go func() {
		close(began)
		for i := range late {
			go func() {
				_, err := r.WatchAll(context.Background(), fmt.Sprint("/new-", i))
				all <- err
			}()
		}
	}()
	<-began
	r.Reconnect()
	for range late {
		require.NoError(t, answerUntil(t, r, all))
	}
	require.Equal(t, len(old)+late, r.WatchedPaths())
	require.Zero(t, waiting(r))
}

// waiting returns how many requests of the session wait to be written or for their replies.
func waiting(r *session.Rig) int {
	queued, pending := r.QueuedCalls()
	return queued + pending
}

// answerUntil answers every request until a call has returned, and returns what it has.
func answerUntil[T any](t *testing.T, r *session.Rig, got <-chan T) T {
	t.Helper()
	for ctx := within(t, soon); ; {
		require.NoError(t, r.Answer(0, nil))
		select {
		case v := <-got:
			return v
		case <-ctx.Done():
			require.FailNow(t, "the call does not return")
		case <-time.After(time.Millisecond): // more may have been written since
		}
	}
}

// lateConn is a connection on which a write fails after the reader has received bytes and before it
// has looked at them.
type lateConn struct {
	net.Conn
	late *atomic.Bool
	gate chan struct{}
}

func (c *lateConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.late.Load() {
		<-c.gate
	}
	return n, err
}

func (c *lateConn) Write(b []byte) (int, error) {
	if c.late.Load() {
		return 0, errors.New("broken pipe")
	}
	return c.Conn.Write(b)
}

// A notification that is read from a connection which has failed meanwhile fires no watch. So the
// next connection has to report the change, whether the notification has a zxid (3.9) or not.
func TestAnEventThatIsReadFromABrokenConnectionIsToldByTheNext(t *testing.T) {
	for name, version := range map[string]zktest.Version{"3.8": zktest.Version38,
		"3.9": zktest.Version39} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *zktest.Server) {
				require.NoError(t, srv.Create("/dir", nil))
				late, gate := new(atomic.Bool), make(chan struct{})
				s := open(t, srv, func(c *session.Config) {
					c.Dial = func(network, addr string, timeout time.Duration) (net.Conn, error) {
						conn, err := srv.Dial(network, addr, timeout)
						if err != nil || late.Load() {
							return conn, err
						}
						return &lateConn{conn, late, gate}, nil
					}
				})
				children, _, _, err := s.WatchChildren(t.Context(), "/dir")
				require.NoError(t, err)
				data, err := s.Watch(t.Context(), "/dir")
				require.NoError(t, err)
				synctest.Wait()
				late.Store(true)
				require.NoError(t, srv.Create("/dir/child", nil))
				require.NoError(t, srv.SetData("/dir", []byte("set")))
				synctest.Wait() // the reader has both
				asked := make(chan error, 1)
				go func() {
					_, err := s.Exists(t.Context(), "/dir")
					asked <- err
				}()
				synctest.Wait()
				require.Equal(t, session.Disconnected, s.State())
				require.False(t, fired(children))
				close(gate)
				require.NoError(t, <-asked)
				time.Sleep(time.Minute)
				require.True(t, fired(children), "nobody tells of the child")
				require.Equal(t, zk.EventNodeChildrenChanged, children.Event())
				require.True(t, fired(data), "nobody tells of the data")
				require.Equal(t, zk.EventNodeDataChanged, data.Event())
				requireNoWatches(t, srv, s)
			}, zktest.WithVersion(version))
		})
	}
}
