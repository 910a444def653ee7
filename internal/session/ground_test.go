package session_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/ensemble"
	"github.com/zklock/locker/zktest"
)

// ground is where a test of the operations runs: on the in-process server or a real one, below a
// chroot or not. Such a test makes all its paths with path, so that the same code runs everywhere.
type ground struct {
	*session.Session
	ctx context.Context
	t   *testing.T
	// one server, so that every session reads what another one was answered; without chroot
	connect string
	dial    session.Dialer
	chroot  string
	base    string // the prefix of a test's paths
}

// path returns a path that only this test uses.
func (g *ground) path(p string) string {
	if g.base+p == "" {
		return "/"
	}
	return g.base + p
}

// outside is the same path as a session without a chroot names it.
func (g *ground) outside(p string) string { return g.chroot + g.base + p }

// another opens one more session on the same ground.
func (g *ground) another(change ...func(*session.Config)) *session.Session {
	g.t.Helper()
	return openAt(g.t, g.connect+g.chroot, append([]func(*session.Config){g.config}, change...)...)
}

func (g *ground) config(c *session.Config) {
	c.Dial = g.dial
	c.TickTime = 500 * time.Millisecond
}

// everywhere runs the same test on zktest and on a real server, below a chroot and without one.
func everywhere(t *testing.T, test func(t *testing.T, g *ground)) {
	t.Helper()
	for _, real := range []bool{false, true} {
		name := "zktest"
		if real {
			name = "ZooKeeper"
		}
		for _, chroot := range []bool{false, true} {
			sub := name
			if chroot {
				sub += " below a chroot"
			}
			t.Run(sub, func(t *testing.T) {
				g := &ground{t: t, ctx: within(t, soon)}
				root := "/test"
				if real {
					e := ensemble.Shared(t, 1)
					g.connect, root = e.Nodes[0].Addr(), e.Path(t)
				} else {
					srv := zktest.Run(t)
					g.connect, g.dial = srv.Addr(), srv.Dial
				}
				if chroot {
					g.chroot = root + "/chroot"
				} else {
					g.base = root
				}
				g.Session = g.another()
				if !chroot { // the chroot itself is made by the first CreateAll
					require.NoError(t,
						g.CreateAll(g.ctx, root, nil, session.Persistent, session.WorldACL()))
				} else {
					require.NoError(t,
						g.CreateAll(g.ctx, "/", nil, session.Persistent, session.WorldACL()))
				}
				test(t, g)
			})
		}
	}
}
