package session_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

func TestASessionFindsOutTheTickBeforeItsFirstHandshake(t *testing.T) {
	for name, c := range map[string]struct {
		opts  []zktest.Option
		given time.Duration
		want  time.Duration
	}{
		"of 500 ms": {[]zktest.Option{zktest.WithTick(
			500 * time.Millisecond)}, 0, 500 * time.Millisecond},
		"of 2 s": {nil, 0, 2 * time.Second},
		"of 3 s": {[]zktest.Option{zktest.WithTick(3 * time.Second)}, 0,
			3 * time.Second},
		"of less than is asked for": {[]zktest.Option{zktest.WithTick(10 * time.Millisecond),
			zktest.WithSessionTimeouts(20*time.Millisecond, time.Minute)}, 0,
			50 * time.Millisecond},
		"with a minimum above two ticks": {[]zktest.Option{zktest.WithSessionTimeouts(
			12*time.Second, time.Minute)}, 0, 6 * time.Second},
		"that is given, and another one": {[]zktest.Option{zktest.WithTick(
			500 * time.Millisecond)}, time.Second, time.Second},
		"that is given, of the same tick": {nil, 2 * time.Second, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *zktest.Server) {
				s := open(t, srv, func(conf *session.Config) { conf.TickTime = c.given })
				require.Equal(t, c.want, s.TickTime())
				require.Len(t, srv.Sessions(), 1, "the one that asked is closed")
				probes := 1
				if c.given > 0 {
					probes = 0
				}
				require.Equal(t, 1+probes, srv.Requests()[fault.OpConnect])
				retain(t, s, ephemeral(t, s))
				for range 5 {
					srv.DropConnections()
					time.Sleep(time.Second)
					require.NoError(t, s.Err())
				}
				require.Equal(t, 6+probes, srv.Requests()[fault.OpConnect], "it asks once")
				require.Equal(t, probes, srv.Requests()[fault.OpCloseSession])
			}, c.opts...)
		})
	}
}

// Nothing that happens to the first handshakes keeps the session from finding out the tick, and
// from its own handshake.
func TestAFaultWhileTheTickIsFoundOutDelaysTheSession(t *testing.T) {
	for name, failure := range map[string]fault.Fault{
		"refused":                fault.Refuse(),
		"closed, and not heard":  fault.CloseBefore().Op(fault.OpConnect),
		"closed, and heard":      fault.CloseAfter().Op(fault.OpConnect),
		"no answer":              fault.DropReply().Op(fault.OpConnect),
		"frozen":                 fault.Freeze(),
		"the end not answered":   fault.DropReply().Op(fault.OpCloseSession),
		"the end not heard":      fault.DropRequest().Op(fault.OpCloseSession),
		"closed instead of that": fault.CloseBefore().Op(fault.OpCloseSession),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *zktest.Server) {
				struck := srv.Inject(failure)
				s, err := session.Start(srv.Addr(), session.Config{Dial: srv.Dial})
				require.NoError(t, err)
				defer s.Close()
				time.Sleep(10 * time.Second)
				struck.Remove()
				began := time.Now()
				require.NoError(t, s.Established(within(t, soon)))
				require.Less(t, time.Since(began), 15*time.Second)
				require.Equal(t, 2*time.Second, s.TickTime())
				time.Sleep(30 * time.Second)
				require.Len(t, srv.Sessions(), 1, "the others run out")
			})
		})
	}
}
