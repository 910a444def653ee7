package session_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// secret is the password of the user ann.
const secret = "s3cret"

// refused opens a session that gets no connection, and returns why.
func refused(t *testing.T, srv *zktest.Server, mechanism session.SASL) error {
	t.Helper()
	s, err := session.Start(srv.Addr(), session.Config{Dial: srv.Dial, SASL: mechanism})
	require.NoError(t, err)
	defer s.Close()
	return s.Established(within(t, soon))
}

func annsOnly() []zk.ACL { return []zk.ACL{{Perms: zk.PermAll, Scheme: "sasl", ID: "ann"}} }

func TestASessionWithSASLHasItsRightsOnEveryConnection(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv, func(c *session.Config) { c.SASL = session.DigestMD5("ann", secret) })
		_, err := s.Create(within(t, soon), "/ann", nil, session.Persistent, annsOnly())
		require.NoError(t, err)
		for range 3 {
			srv.DropConnections()
			// repeated if the connection breaks before the reply
			_, _, err = s.Get(within(t, soon), "/ann")
			require.NoError(t, err)
		}
		assert.EqualValues(t, 8, srv.Requests()[fault.OpSASL],
			"two messages on each of four connections")

		stranger := open(t, srv)
		_, _, err = stranger.Get(within(t, soon), "/ann")
		require.ErrorIs(t, err, zk.ErrNoAuth)
	}, zktest.WithSASLUsers(map[string]string{"ann": secret}))
}

func TestAUserThatSASLRefusesEndsTheSession(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		for _, mechanism := range []session.SASL{session.DigestMD5("ann", "guess"),
			session.DigestMD5("nobody", secret)} {
			err := refused(t, srv, mechanism)
			require.ErrorIs(t, err, session.ErrAuth)
			require.ErrorContains(t, err, "SASL DIGEST-MD5 at ")
		}
	}, zktest.WithSASLUsers(map[string]string{"ann": secret}))
}

func TestAServerWithoutSASLIsNamed(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		err := refused(t, srv, session.DigestMD5("ann", secret))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, session.ErrAuth, "another server may have it")
		require.ErrorContains(t, err, "the server has no SASL")
	})
}

func TestAServerThatDoesNotKnowThePasswordIsNotBelieved(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		srv.Inject(fault.Garble(func(b []byte) []byte {
			b[len(b)-1] ^= 1
			return b
		}).Op(fault.OpSASL).Nth(2))
		s := open(t, srv, func(c *session.Config) { c.SASL = session.DigestMD5("ann", secret) })
		assert.EqualValues(t, 4, srv.Requests()[fault.OpSASL], "the first connection was given up")
		_, err := s.Exists(within(t, soon), "/")
		require.NoError(t, err)
	}, zktest.WithSASLUsers(map[string]string{"ann": secret}))
}

// The connected server answers SASL requests by itself, so these answers do not prolong the lease.
func TestAnswersToSASLProlongNoLease(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		const takes = time.Second
		srv.Inject(fault.DelayReply(takes).Op(fault.OpSASL))
		began := time.Now()
		s := open(t, srv, func(c *session.Config) { c.SASL = session.DigestMD5("ann", secret) })
		require.GreaterOrEqual(t, time.Since(began), 2*takes)
		srv.Inject(fault.CloseBefore()) // nothing else is ever answered
		srv.DropConnections()
		<-s.Done()
		require.ErrorIs(t, s.Err(), session.ErrLeaseExpired)
		require.LessOrEqual(t, time.Since(began), s.Timeout(), "counted from the handshake")
	}, zktest.WithSASLUsers(map[string]string{"ann": secret}))
}

// failing is a program's own mechanism, which fails at first.
type failing struct {
	session.SASL
	times int
}

var errNoTicket = errors.New("no ticket")

func (f *failing) Begin(server string) session.Negotiation {
	if f.times--; f.times >= 0 {
		return failed{}
	}
	return f.SASL.Begin(server)
}

type failed struct{}

func (failed) Step(context.Context, []byte) ([]byte, bool, error) { return nil, false, errNoTicket }

func TestAMechanismThatFailsIsTriedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		mechanism := &failing{SASL: session.DigestMD5("ann", secret), times: 2}
		s := open(t, srv, func(c *session.Config) { c.SASL = mechanism })
		_, err := s.Exists(within(t, soon), "/")
		require.NoError(t, err)

		require.ErrorContains(t, refused(t, srv, &failing{SASL: mechanism.SASL, times: 1 << 30}),
			"no ticket")
	}, zktest.WithSASLUsers(map[string]string{"ann": secret}))
}
