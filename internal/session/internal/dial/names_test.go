package dial_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session/internal/dial"
)

// nameServer answers, fails, or is silent.
type nameServer struct {
	addrs []string
	err   error
	slow  time.Duration // before it answers; less than 0: it never does
}

func (s *nameServer) lookup(ctx context.Context, _ string) ([]string, error) {
	if s.slow < 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	select {
	case <-time.After(s.slow):
		return s.addrs, s.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// listen opens a server, and returns its port.
func listen(t *testing.T, addr string) string {
	l, err := net.Listen("tcp", net.JoinHostPort(addr, "0"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	return port
}

// Scenario 86: the last known addresses are tried when a lookup fails or is silent.
func TestTheLastKnownAddressesAreTriedWhenALookUpFails(t *testing.T) {
	for name, broken := range map[string]nameServer{
		"it fails":     {err: &net.DNSError{Err: "server misbehaving", IsTemporary: true}},
		"it is silent": {slow: -1},
	} {
		t.Run(name, func(t *testing.T) {
			server := net.JoinHostPort("zk1.example", listen(t, "127.0.0.1"))
			names := &nameServer{addrs: []string{"127.0.0.1"}}
			defer dial.ReplaceLookup(func(ctx context.Context, host string) ([]string, error) {
				return names.lookup(ctx, host)
			})()
			open := func() error {
				conn, err := (&dial.Config{}).Open(t.Context(), server, 5*time.Second)
				if err != nil {
					return err
				}
				return conn.Close()
			}
			require.NoError(t, open())
			names = &broken
			began := time.Now()
			require.NoError(t, open())
			require.Less(t, time.Since(began), 3*time.Second)
		})
	}
}

// Without known addresses a failed lookup is the error.
func TestAFirstLookUpThatFailsIsTheError(t *testing.T) {
	names := nameServer{err: errors.New("the name server is on fire")}
	defer dial.ReplaceLookup(names.lookup)()
	_, err := (&dial.Config{}).Open(t.Context(), "zk1.example:2181", time.Second)
	require.ErrorContains(t, err, "on fire")
}

// A server may have moved: a lookup that succeeds while the last known addresses are tried wins.
func TestALookUpThatSucceedsWins(t *testing.T) {
	const gone = "192.0.2.1" // nobody's: RFC 5737
	server := net.JoinHostPort("zk1.example", listen(t, "127.0.0.1"))
	names := &nameServer{addrs: []string{gone}}
	defer dial.ReplaceLookup(func(ctx context.Context, host string) ([]string, error) {
		return names.lookup(ctx, host)
	})()
	_, err := (&dial.Config{}).Open(t.Context(), server, 10*time.Millisecond)
	require.Error(t, err)
	names = &nameServer{addrs: []string{"127.0.0.1"}, slow: 500 * time.Millisecond}
	began := time.Now()
	conn, err := (&dial.Config{}).Open(t.Context(), server, 10*time.Second)
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	require.Less(t, time.Since(began), 5*time.Second)
}

// A name server that says that there is no such name is believed: the address may be another's now.
func TestANameThatIsGoneIsNotDialled(t *testing.T) {
	server := net.JoinHostPort("zk1.example", listen(t, "127.0.0.1"))
	names := &nameServer{addrs: []string{"127.0.0.1"}}
	defer dial.ReplaceLookup(func(ctx context.Context, host string) ([]string, error) {
		return names.lookup(ctx, host)
	})()
	conn, err := (&dial.Config{}).Open(t.Context(), server, 5*time.Second)
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	names = &nameServer{err: &net.DNSError{Err: "no such host", Name: "zk1.example",
		IsNotFound: true}}
	_, err = (&dial.Config{}).Open(t.Context(), server, 5*time.Second)
	require.ErrorContains(t, err, "no such host")
}

// A slow lookup confirms several addresses while they are being dialled.
func TestALookUpConfirmsTheLastKnownAddresses(t *testing.T) {
	all := func() []string { return []string{"192.0.2.1", "192.0.2.2", "192.0.2.3"} } // nobody's
	names := &nameServer{addrs: all()}
	defer dial.ReplaceLookup(func(ctx context.Context, host string) ([]string, error) {
		return names.lookup(ctx, host)
	})()
	_, err := (&dial.Config{}).Open(t.Context(), "zk1.example:2181", 10*time.Millisecond)
	require.Error(t, err)
	names = &nameServer{addrs: all(), slow: 250 * time.Millisecond}
	_, err = (&dial.Config{}).Open(t.Context(), "zk1.example:2181", 500*time.Millisecond)
	require.Error(t, err)
}

// The error says why the lookup failed, and why the last known address could not be reached.
func TestAnErrorNamesTheLookUpAndTheLastKnownAddress(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	names := &nameServer{addrs: []string{"127.0.0.1"}}
	defer dial.ReplaceLookup(func(ctx context.Context, host string) ([]string, error) {
		return names.lookup(ctx, host)
	})()
	server := net.JoinHostPort("zk1.example", port)
	conn, err := (&dial.Config{}).Open(t.Context(), server, 5*time.Second)
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	require.NoError(t, l.Close())
	names = &nameServer{err: &net.DNSError{Err: "server misbehaving", IsTemporary: true}}
	_, err = (&dial.Config{}).Open(t.Context(), server, 2*time.Second)
	require.ErrorContains(t, err, "server misbehaving")
	require.ErrorContains(t, err, "connection refused")
}
