package zktest_test

import (
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/ensemble"
	"github.com/zklock/locker/zktest"
)

// A session that moves to another member leaves its old connection open. The answers on that
// connection are compared with a real ensemble's, for each pair of roles that the two members can
// have.
func TestOldConnectionsOfMovedSessionsBehaveAsOnARealEnsemble(t *testing.T) {
	real := ensemble.Start(t, 3, ensemble.WithTick(500*time.Millisecond))
	ours := zktest.Run(t, zktest.WithTick(500*time.Millisecond), sameVersion(t, real))
	var addrs [2]map[string][]string // ours and the real one's, by role
	for i := range addrs {
		addrs[i] = map[string][]string{}
	}
	addrs[0]["leader"] = []string{ours.Addr()}
	for range 2 {
		m, err := ours.Follower()
		require.NoError(t, err)
		addrs[0]["follower"] = append(addrs[0]["follower"], m.Addr())
	}
	for _, n := range real.Nodes {
		addrs[1][n.Mode()] = append(addrs[1][n.Mode()], n.Addr())
	}
	for _, roles := range [][2]string{{"follower", "leader"}, {"leader", "follower"},
		{"follower", "follower"}} {
		t.Run(roles[0]+" to "+roles[1], func(t *testing.T) {
			// A real server that is short of time may close a connection before its reply to
			// "close" has left, and carry out the deletion later: then the whole trial is made
			// again.
			var ours, theirs []string
			for range 5 {
				ours, theirs = moved(t, addrs[0], roles), moved(t, addrs[1], roles)
				if slices.Equal(ours, theirs) {
					return
				}
			}
			assert.Equal(t, theirs, ours)
		})
	}
}

// moved returns the answers to a client whose session moves from a member of one role to another
// one's, and that goes on using both connections.
func moved(t *testing.T, addrs map[string][]string, roles [2]string) (trace []string) {
	t.Helper()
	from, to := addrs[roles[0]][0], addrs[roles[1]][len(addrs[roles[1]])-1]
	s := scriptAt(from)
	s.do(t, "a create /e m=e")
	old := s.sessions["a"]
	old.name = "old" // in the trace
	s.dial = scriptAt(to).dial
	s.do(t, "a reattach")
	s.sessions["old"] = old
	for _, l := range []string{"a sync /", "old ping", "old exists /e", "a set /e d=1",
		"old set /e d=2", "old eof", "a get /e", "a close"} {
		s.do(t, l)
	}
	for _, l := range s.trace {
		trace = append(trace, zxids.ReplaceAllString(l, "z"))
	}
	return trace
}

// In a real ensemble a zxid is an epoch and a count, and includes the ensemble's other writes.
var zxids = regexp.MustCompile(`z[+-]\d+`)
