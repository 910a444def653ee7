package session_test

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/zktest"
)

// diary is an OnState that records the changes.
type diary struct {
	mu      sync.Mutex
	changes []session.Change
}

func (d *diary) note(c session.Change) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changes = append(d.changes, c)
}

func (d *diary) listen(c *session.Config) { c.OnState = d.note }

func (d *diary) states() (states []session.State) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.changes {
		states = append(states, c.State)
	}
	return states
}

func (d *diary) last() session.Change {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.changes[len(d.changes)-1]
}

func TestOnStateIsToldOfEveryChangeInOrder(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		var d diary
		s := open(t, srv, d.listen)
		synctest.Wait()
		require.Equal(t, []session.State{session.Connected}, d.states())
		require.Equal(t,
			session.Change{State: session.Connected, ID: s.ID(), Addr: srv.Addr(),
				Timeout: 10 * time.Second}, d.last())

		for range 3 {
			srv.DropConnections()
			time.Sleep(3 * time.Second)
		}
		c, o, x := session.Connected, session.Disconnected, session.Over
		require.Equal(t, []session.State{c, o, c, o, c, o, c}, d.states())
		require.NoError(t, srv.Expire(s.ID()))
		srv.DropConnections()
		eventually(t, s.Done(), "the end of an expired session")
		require.NoError(t, s.Close()) // joins the listener
		require.Equal(t, []session.State{c, o, c, o, c, o, c, o, x}, d.states())
		require.Equal(t, x, d.last().State)
		require.Equal(t, session.ErrExpired, d.last().Err)
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, c := range d.changes {
			require.Equal(t, s.ID(), c.ID)
			if c.State == session.Disconnected {
				require.Error(t, c.Err)
				require.Equal(t, srv.Addr(), c.Addr)
			}
		}
	})
}

func TestASlowListenerHoldsNothingUp(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		let := make(chan struct{})
		var heard int
		s := open(t, srv, func(c *session.Config) {
			c.OnState = func(session.Change) { <-let; heard++ }
		})
		for range 200 { // two changes each
			srv.DropConnections()
			time.Sleep(2 * time.Second)
			_, err := s.Exists(within(t, soon), "/")
			require.NoError(t, err)
		}
		close(let)
		require.NoError(t, s.Close())
		require.InDelta(t, 64, heard, 2,
			"what waits for a listener is bounded, and the latest is what is kept")
	})
}

func TestTheStateAndTheErrorAgree(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		require.Equal(t, session.Connected, s.State())
		require.NoError(t, s.Err())
		require.NoError(t, s.Alive())
		require.NoError(t, s.Context().Err())
		require.NotZero(t, s.ID())
		require.Equal(t, 10*time.Second, s.Timeout())

		srv.Leader().Down()
		synctest.Wait()
		require.Equal(t, session.Disconnected, s.State())
		require.NoError(t, s.Err())
		require.NoError(t, s.Established(context.Background()), "it has been connected once")
		srv.Leader().Up()
		time.Sleep(2 * time.Second)
		require.Equal(t, session.Connected, s.State())

		require.NoError(t, s.Close())
		require.Equal(t, session.Over, s.State())
		require.Equal(t, session.ErrClosed, s.Err())
		require.Equal(t, session.ErrClosed, s.Alive())
		require.Equal(t, session.ErrClosed, context.Cause(s.Context()))
		require.NotErrorIs(t, s.Err(), session.ErrLost, "it was asked for")
		require.ErrorIs(t, s.Established(context.Background()), session.ErrClosed)
	})
}

func TestTheServersTimeoutIsTheSessions(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		for asked, granted := range map[time.Duration]time.Duration{
			time.Second: 4 * time.Second, 10 * time.Second: 10 * time.Second,
			time.Hour: 40 * time.Second,
		} {
			s := open(t, srv, func(c *session.Config) { c.Timeout = asked })
			require.Equal(t, granted, s.Timeout())
			info, ok := srv.Session(s.ID())
			require.True(t, ok)
			require.Equal(t, granted, info.Timeout)
			require.False(t, s.SafeUntil().After(time.Now()), "no write has confirmed it")
			ephemeral(t, s)
			require.WithinDuration(t, time.Now().Add(granted*98/100), s.SafeUntil(), 0,
				"less a fiftieth for drift")
		}
	})
}

func TestGoRunsUntilTheSessionIsOverAndCloseJoinsIt(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		var ended bool
		require.True(t, s.Go(func(ctx context.Context) {
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), session.ErrClosed)
			time.Sleep(time.Minute) // however long it takes
			ended = true
		}))
		require.NoError(t, s.Close())
		require.True(t, ended)
		require.False(t, s.Go(func(context.Context) { t.Error("runs after the end") }))
	})
}

func TestOneSessionHasOneConnAndNeverASecondSession(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		id := s.ID()
		_, err := s.Create(within(t, soon), "/e", nil, session.Ephemeral, session.WorldACL())
		require.NoError(t, err)
		srv.Leader().Down()
		synctest.Wait()
		queued := make(chan error, 1)
		go func() { // waits for a connection, and must not be carried out in another session
			_, err := s.Create(context.Background(), "/late", nil, session.Ephemeral,
				session.WorldACL())
			queued <- err
		}()
		require.NoError(t, srv.Expire(id))
		srv.Leader().Up()
		eventually(t, s.Done(), "the news of the expiry")
		require.Equal(t, session.ErrExpired, s.Err())
		require.ErrorIs(t, <-queued, session.ErrExpired)
		time.Sleep(time.Hour)
		require.Equal(t, id, s.ID())
		require.Empty(t, srv.Sessions(), "no second session")
		_, late := srv.Node("/late")
		require.False(t, late)
		_, err = s.Exists(context.Background(), "/")
		require.ErrorIs(t, err, session.ErrExpired)
		_, err = s.Retain(context.Background(), "/e")
		require.ErrorIs(t, err, session.ErrExpired)
	})
}

// A follower that lags behind what the session has seen is refused: its reads would go back in
// time.
func TestAServerThatIsOlderThanWhatWasSeenIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		lagging, err := srv.Follower()
		require.NoError(t, err)
		var at atomic.Pointer[zktest.Member]
		at.Store(srv.Leader())
		s := open(t, srv, func(c *session.Config) {
			c.Dial = func(network, addr string, timeout time.Duration) (net.Conn, error) {
				return at.Load().Dial(network, addr, timeout)
			}
		})
		lagging.Lag(1)
		_, err = s.Create(within(t, soon), "/e", nil, session.Ephemeral, session.WorldACL())
		require.NoError(t, err)
		at.Store(lagging)
		srv.DropConnections()
		look, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err = s.Exists(look, "/e")
		require.ErrorIs(t, err, context.DeadlineExceeded, "not an answer from the past")
		lagging.Lag(0)
		_, err = s.Exists(within(t, soon), "/e")
		require.NoError(t, err)
	})
}
