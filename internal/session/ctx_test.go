package session_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// calls are all operations, each on an existing znode /x. write: one that has been sent may have
// been carried out.
var calls = map[string]struct {
	op    fault.Op
	write bool
	do    func(ctx context.Context, s *session.Session) error
}{
	"create": {fault.OpCreate, true, func(ctx context.Context, s *session.Session) error {
		_, err := s.Create(ctx, "/x/c-", nil, session.EphemeralSequential, everybody)
		return err
	}},
	"create container": {fault.OpCreateContainer, true,
		func(ctx context.Context, s *session.Session) error {
			_, err := s.Create(ctx, "/x/box", nil, session.Container, everybody)
			return err
		}},
	"create and list": {fault.OpCreate, true, func(ctx context.Context, s *session.Session) error {
		_, _, err := createAndList(ctx, s, "/x/c-", nil, session.EphemeralSequential, everybody)
		return err
	}},
	"create all": {fault.OpCreate, true, func(ctx context.Context, s *session.Session) error {
		return s.CreateAll(ctx, "/x/all", nil, session.Persistent, everybody)
	}},
	"delete": {fault.OpDelete, true, func(ctx context.Context, s *session.Session) error {
		return s.Delete(ctx, "/x/d", -1)
	}},
	"set": {fault.OpSetData, true, func(ctx context.Context, s *session.Session) error {
		_, err := s.Set(ctx, "/x", nil, -1)
		return err
	}},
	"set ACL": {fault.OpSetACL, true, func(ctx context.Context, s *session.Session) error {
		_, err := s.SetACL(ctx, "/x", everybody, -1)
		return err
	}},
	"multi": {fault.OpMulti, true, func(ctx context.Context, s *session.Session) error {
		_, err := s.Multi(ctx, session.OpCheck{Path: "/x", Version: -1})
		return err
	}},
	"get": {fault.OpGetData, false, func(ctx context.Context, s *session.Session) error {
		_, _, err := s.Get(ctx, "/x")
		return err
	}},
	"list": {fault.OpGetChildren2, false,
		func(ctx context.Context, s *session.Session) error {
			_, _, err := s.List(ctx, "/x")
			return err
		}},
	"exists": {fault.OpExists, false, func(ctx context.Context, s *session.Session) error {
		_, err := s.Exists(ctx, "/x")
		return err
	}},
	"exists now": {fault.OpExists, false, func(ctx context.Context, s *session.Session) error {
		_, err := existsNow(ctx, s, "/x")
		return err
	}},
	"ACL": {fault.OpGetACL, false, func(ctx context.Context, s *session.Session) error {
		_, _, err := s.ACL(ctx, "/x")
		return err
	}},
	"sync": {fault.OpSync, false, func(ctx context.Context, s *session.Session) error {
		return s.Sync(ctx, "/x")
	}},
	"watch": {fault.OpExists, false, func(ctx context.Context, s *session.Session) error {
		_, err := s.Watch(ctx, "/x")
		return err
	}},
}

// everyCall runs a test for each operation, with a session in a bubble.
func everyCall(
	t *testing.T, test func(t *testing.T, srv *zktest.Server, s *session.Session, name string),
) {
	t.Helper()
	for name := range calls {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *zktest.Server) {
				require.NoError(t, srv.Create("/x", nil))
				require.NoError(t, srv.Create("/x/d", nil))
				test(t, srv, open(t, srv), name)
			})
		})
	}
}

var errOwn = errors.New("the caller's own reason")

func TestACallWhoseContextHasEndedSendsNothing(t *testing.T) {
	everyCall(t, func(t *testing.T, srv *zktest.Server, s *session.Session, name string) {
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(errOwn)
		before := srv.Requests()[calls[name].op]
		// a watch that has just been set is not refused
		answers := srv.Inject(fault.Hold().Op(calls[name].op))
		err := calls[name].do(ctx, s)
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, errOwn, "it might be taken for an answer")
		require.ErrorContains(t, err, errOwn.Error())
		require.NotErrorIs(t, err, session.ErrUnknownOutcome)
		time.Sleep(time.Second)
		answers.Remove()
		if name != "watch" { // which may be under way for other callers
			require.Equal(t, before, srv.Requests()[calls[name].op])
		}
		require.NoError(t, calls[name].do(within(t, soon), s), "the next call is not harmed")
	})
}

func TestACallWhoseContextEndsInFlightReturnsAtOnce(t *testing.T) {
	everyCall(t, func(t *testing.T, srv *zktest.Server, s *session.Session, name string) {
		c := calls[name]
		failure := srv.Inject(fault.Hold().Op(c.op))
		start := time.Now()
		err := c.do(within(t, time.Second), s)
		require.Equal(t, time.Second, time.Since(start))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, c.write, errors.Is(err, session.ErrUnknownOutcome),
			"exactly what may have been done is unknown: %v", err)
		require.NotErrorIs(t, err, session.ErrConnection)
		if name != "watch" {
			require.ErrorContains(t, err, srv.Addr(), "the message names the server")
		}
		failure.Remove()
		_, err = s.Exists(within(t, soon), "/x")
		require.NoError(t, err, "the late reply is nobody's")
		synctest.Wait()
		queued, pending := s.QueuedCalls()
		require.Zero(t, queued+pending)
	})
}

func TestACallWhoseReplyIsLostWithTheConnection(t *testing.T) {
	everyCall(t, func(t *testing.T, srv *zktest.Server, s *session.Session, name string) {
		c := calls[name]
		srv.Inject(fault.CloseAfter().Op(c.op).Once())
		err := c.do(within(t, soon), s)
		if !c.write || name == "create all" {
			require.NoError(t, err, "it is sent again")
			return
		}
		require.ErrorIs(t, err, session.ErrUnknownOutcome)
		require.ErrorIs(t, err, session.ErrConnection)
	})
}

func TestACallWithoutAConnectionWaitsAndThenSaysWhichServersWereTried(t *testing.T) {
	everyCall(t, func(t *testing.T, srv *zktest.Server, s *session.Session, name string) {
		failure := srv.Inject(fault.Refuse())
		srv.DropConnections()
		synctest.Wait()
		start := time.Now()
		err := calls[name].do(within(t, time.Second), s)
		require.Equal(t, time.Second, time.Since(start))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, session.ErrUnknownOutcome, "it never left")
		require.ErrorContains(t, err,
			"waiting for a connection: no server reachable: "+srv.Addr()+": ")
		require.ErrorContains(t, err, "refused")

		later := make(chan error, 1)
		go func() { later <- calls[name].do(within(t, soon), s) }()
		time.Sleep(time.Second)
		failure.Remove()
		require.NoError(t, <-later, "it waits for the next connection")
	})
}

func TestACallThatWaitsEndsWithTheSession(t *testing.T) {
	everyCall(t, func(t *testing.T, srv *zktest.Server, s *session.Session, name string) {
		srv.Leader().Down()
		synctest.Wait()
		ended := make(chan error, 1)
		go func() { ended <- calls[name].do(context.Background(), s) }()
		synctest.Wait()
		require.NoError(t, s.Close())
		err := <-ended
		require.ErrorIs(t, err, session.ErrClosed)
		require.NotErrorIs(t, err, session.ErrUnknownOutcome)
		require.ErrorIs(t, calls[name].do(context.Background(), s), session.ErrClosed,
			"and so does every later one")
	})
}

func TestACallInFlightEndsWithTheSession(t *testing.T) {
	everyCall(t, func(t *testing.T, srv *zktest.Server, s *session.Session, name string) {
		c := calls[name]
		srv.Inject(fault.Hold().Op(c.op))
		ended := make(chan error, 1)
		go func() { ended <- c.do(context.Background(), s) }()
		synctest.Wait()
		require.NoError(t, s.Close())
		err := <-ended
		require.ErrorIs(t, err, session.ErrClosed)
		require.Equal(t, c.write, errors.Is(err, session.ErrUnknownOutcome), "%v", err)
	})
}

func TestBeforeTheFirstConnectionACallSaysThatNoServerHasAnswered(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		srv.Inject(fault.DropRequest().Op(fault.OpConnect))
		s := start(t, srv.Dial)
		_, err := s.Exists(within(t, 100*time.Millisecond), "/")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "no server of a:1 has answered yet")
	})
}
