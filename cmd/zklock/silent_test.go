//go:build linux

package main

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// A server that accepts clients, and leaves one kind of request and all that follows it unanswered,
// blocks only commands that wait for a lock: others end after --connect-timeout.
func TestCommandsThatDoNotWaitForALockEndWhenAServerDoesNotAnswer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		held fault.Op
		args []string
	}{
		{"prune, sync", fault.OpSync, []string{"prune", "/locks"}},
		{"prune, list", fault.OpGetChildren2, []string{"prune", "/locks"}},
		{"prune --yes, delete", fault.OpDelete,
			[]string{"prune", "--yes", "--older-than", "0s", "/locks"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			require.NoError(t, s.Create("/locks", nil))
			require.NoError(t, s.Create("/locks/a", nil))
			// prune takes an empty directory for a lock's only if it has had children.
			require.NoError(t, s.Create("/locks/a/x-lock-0000000000", nil))
			require.NoError(t, s.Delete("/locks/a/x-lock-0000000000"))
			s.Inject(fault.Hold().Op(c.held))
			began := time.Now()
			launch(t, s.Addr(),
				append([]string{"--connect-timeout", "2s"}, c.args...)...).exits(exitUnreachable)
			require.GreaterOrEqual(t, time.Since(began), 2*time.Second)
		})
	}
}

// From ZooKeeper 3.8.4 on only the name of a znode that may not be read is known.
func TestQueueSaysWhichContendersHaveNoTokenToBreakThemBy(t *testing.T) {
	t.Parallel()
	s, err := zktest.Start(zktest.WithVersion(zktest.Version39))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Create("/locks", nil))
	c, err := zklock.Dial(t.Context(), s.Addr())
	require.NoError(t, err)
	defer c.Close()
	acl := zk.ACL{Perms: zk.PermDelete, Scheme: "world", ID: "anyone"}
	_, _, err = c.Mutex("/locks", zklock.WithACL(acl)).Lock(t.Context())
	require.NoError(t, err)
	p := launch(t, s.Addr(), "queue", "/locks")
	p.exits(0)
	require.Regexp(t, `(?m)^1 +holds +mutex +- +- +- +- +- +-$`, p.out.String())
	require.Contains(t, p.err.String(), "1 of these may not be read with these credentials")
	p = launch(t, s.Addr(), "ls", "/")
	p.exits(0)
	require.Regexp(t, `(?m)^/locks +mutex +\(may not be read\) +- +0$`, p.out.String())
}
