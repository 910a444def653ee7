package zktest_test

import (
	"net"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// bubble runs f with a server and a scripted client of it, in a synctest bubble: time is fake and
// costs nothing.
func bubble(
	t *testing.T, f func(t *testing.T, s *zktest.Server, c *script), opts ...zktest.Option,
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Run(t, append([]zktest.Option{zktest.WithoutListener()}, opts...)...)
		f(t, s, scriptOn(t, s.Dial))
	})
}

type dialer func(network, addr string, timeout time.Duration) (net.Conn, error)

// scriptOn returns a script whose sessions connect by a dialer. Their connections end with the
// test.
func scriptOn(t *testing.T, d dialer) *script {
	c := newScript(func() (net.Conn, error) { return d("", "", 0) })
	t.Cleanup(func() {
		for _, r := range c.sessions {
			_ = r.nc.Close()
		}
	})
	return c
}

// scriptAt returns a script whose sessions connect to an address.
func scriptAt(addr string) *script {
	return newScript(func() (net.Conn, error) { return net.Dial("tcp", addr) })
}

// do runs one line and returns what it added to the trace.
func (s *script) do(t *testing.T, line string) string {
	t.Helper()
	n := len(s.trace)
	require.NoError(t, s.step(line))
	s.recordEvents()
	return strings.Join(s.trace[n:], "\n")
}

// send sends the request of a line and does not wait for its answer, which the session's next line
// takes for its own.
func (s *script) send(t *testing.T, line string) {
	t.Helper()
	session, request, _ := strings.Cut(line, " ")
	require.NoError(t, s.step(session+" quiet "+request))
}

// ok runs lines that must succeed.
func (s *script) ok(t *testing.T, lines ...string) {
	t.Helper()
	for _, l := range lines {
		require.Contains(t, s.do(t, l), " code=0 ", l)
	}
}

// refused runs a line whose request the server must answer with code.
func (s *script) refused(t *testing.T, line string, code fault.Code) {
	t.Helper()
	require.Contains(t, s.do(t, line), " code="+strconv.Itoa(int(code))+" ", line)
}

// exists reports whether the leader has a znode.
func exists(s *zktest.Server, path string) bool {
	_, ok := s.Node(path)
	return ok
}
