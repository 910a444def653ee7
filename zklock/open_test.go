package zklock_test

import (
	"context"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

func TestAClientThatWasOpenedDuringAnOutageLocksWhenItIsOver(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		srv.Leader().Down()
		c, err := zklock.Open(srv.Addr(), zklock.WithDialer(srv.Dial))
		require.NoError(t, err)
		defer c.Close()
		require.Equal(t, session.Connecting, c.SessionStatus().State)
		_, _, err = c.Mutex("/l").Lock(locktest.Within(t, time.Second))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, zklock.ErrUnreachable)
		require.ErrorContains(t, err, "no server reachable")
		got := make(chan error, 1)
		go func() {
			_, h, err := c.Mutex("/l").Lock(locktest.Within(t, 10*time.Minute))
			if err == nil {
				err = h.Unlock()
			}
			got <- err
		}()
		time.Sleep(5 * time.Minute)
		require.Empty(t, got)
		srv.Leader().Up()
		require.NoError(t, <-got)
	})
}

func TestAClientThatIsOpenedAndClosedWithoutAServerLeavesNothingBehind(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		srv.Leader().Down()
		c, err := zklock.Open(srv.Addr(), zklock.WithDialer(srv.Dial))
		require.NoError(t, err)
		require.NoError(t, c.Close())
		_, _, err = c.Mutex("/l").Lock(locktest.Within(t, time.Second))
		require.ErrorIs(t, err, zklock.ErrClosed)
		_, err = zklock.Open("zk1:port")
		require.ErrorIs(t, err, zklock.ErrInvalid)
		_, err = zklock.Open("zk1", zklock.WithSessionTimeout(-1))
		require.ErrorIs(t, err, zklock.ErrInvalid)
	})
}

func TestADialTellsWhomItCantReachAndWhy(t *testing.T) {
	for name, own := range map[string]bool{"to its own logger": true, "to slog's default": false} {
		t.Run(name, func(t *testing.T) {
			var told locktest.Buffer
			log := slog.New(slog.NewTextHandler(&told, &slog.HandlerOptions{Level: slog.LevelWarn}))
			var opts []zklock.Option
			if own {
				opts = append(opts, zklock.WithLogger(log))
			} else {
				was := slog.Default()
				slog.SetDefault(log)
				defer slog.SetDefault(was)
			}
			locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
				srv.Leader().Down()
				ctx, cancel := context.WithCancel(context.Background())
				dialled := make(chan error, 1)
				go func() {
					c, err := zklock.Dial(ctx, srv.Addr(),
						append(opts, zklock.WithDialer(srv.Dial))...)
					if err == nil {
						err = c.Close()
					}
					dialled <- err
				}()
				lines := func() int {
					synctest.Wait()
					return strings.Count(told.String(), "no server reachable, so no lock")
				}
				time.Sleep(4 * time.Second)
				require.Zero(t, lines())
				time.Sleep(2 * time.Second)
				require.Equal(t, 1, lines(), told.String())
				require.Contains(t, told.String(), srv.Addr())
				require.Contains(t, told.String(), "no server reachable")
				time.Sleep(2 * time.Minute)
				require.Equal(t, 3, lines())
				srv.Leader().Up()
				require.NoError(t, <-dialled)

				srv.Leader().Down()
				told.Reset()
				_, err := zklock.Dial(locktest.Within(t, time.Minute), srv.Addr(),
					append(opts, zklock.WithDialer(srv.Dial))...)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.Equal(t, 1, lines(), "after 5 s; then the caller is told")
				cancel()
			})
		})
	}
}

func TestAChrootThatDoesNotExistIsMadeOnlyWhenAskedFor(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		dial := func(opts ...zklock.Option) *zklock.Client {
			c, err := zklock.Dial(locktest.Soon(t), srv.Addr()+"/team/a",
				append(opts, zklock.WithDialer(srv.Dial))...)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, c.Close()) })
			return c
		}
		c := dial()
		for _, lock := range []locktest.Acquire{c.Mutex("/l").Lock, c.Mutex("/l/m/n").TryLock,
			c.RWMutex("/rw").Lock, c.MultiLock([]string{"/a", "/b"}).Lock} {
			_, _, err := lock(locktest.Soon(t))
			require.ErrorIs(t, err, zklock.ErrInvalid)
			require.ErrorContains(t, err, `chroot "/team/a": does not exist`)
			require.NotErrorIs(t, err, zk.ErrNoNode)
		}
		_, there := srv.Node("/team")
		require.False(t, there)

		locktest.Unlock(t, locktest.Lock(t, dial(zklock.WithCreateChroot()).Mutex("/x/l")))
		_, there = srv.Node("/team/a/x/l")
		require.True(t, there)
		locktest.Unlock(t, locktest.Lock(t, c.Mutex("/l/m/n")))
	})
}

// The servers grant more than a tiny timeout, and a client that asks for one reaches them, however
// slow the network is.
func TestATinyTimeoutConnectsOverASlowNetwork(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		const roundTrip = 300 * time.Millisecond
		srv.Inject(fault.Delay(roundTrip))
		slow := func(network, addr string, limit time.Duration) (net.Conn, error) {
			time.Sleep(min(limit, roundTrip))
			if limit < roundTrip {
				return nil, os.ErrDeadlineExceeded
			}
			return srv.Dial(network, addr, limit)
		}
		c := locktest.Dial(t, srv, zklock.WithSessionTimeout(100*time.Millisecond),
			zklock.WithDialer(slow))
		locktest.Unlock(t, locktest.Lock(t, c.Mutex("/locks/a")))
	})
}
