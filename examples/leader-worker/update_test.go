package main

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zklock/admin"
)

// A rolling update: of three replicas one after the other is replaced, as Kubernetes does: a new
// one is started, and once it is in line an old one is told to leave. Each update hands over once,
// to a new replica, and no piece of work is lost or done twice, also when a replica is killed, or
// does not leave until it is, or the servers are away meanwhile.
func TestARollingUpdateHandsOverOnce(t *testing.T) {
	const updates = 20
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var out printed
	work := journal(filepath.Join(t.TempDir(), "journal"))
	timeout := 2 * time.Second
	f, err := newFleet(build(t), timeout/4, &out, "-session-timeout", timeout.String(), "-journal",
		string(work))
	require.NoError(t, err)
	defer func() { require.NoError(t, f.close()) }()
	client, err := zklock.Dial(ctx, f.addr())
	require.NoError(t, err)
	defer client.Close()

	var old []string
	begin := func(rank int, flags ...string) string {
		// starts a replica, and returns when it is in line
		name, err := f.start(rank, flags...)
		require.NoError(t, err)
		require.NoError(t, f.until(ctx, func() (bool, error) {
			for c, err := range admin.Queue(ctx, client, partition) {
				if err != nil || c.Owner == name {
					return err == nil, err
				}
			}
			return false, nil
		}), "%s\n%s", name, &out)
		return name
	}
	for range 3 {
		old = append(old, begin(0))
	}
	for update := 1; update <= updates; update++ {
		require.NoError(t, f.until(ctx, more(work, 3)), "%s", &out)
		before := leaders(t, work)
		var fresh []string
		for i, name := range old {
			if update%4 == 2 && i == 0 { // it will lead, and not leave at the next update
				fresh = append(fresh, begin(update, "-deaf"))
			} else {
				fresh = append(fresh, begin(update))
			}
			end := f.leave
			switch {
			case update%4 == 3 && i == 0:
				end = f.leaveOrKill
			case update%3 == 1 && i == 1:
				end = f.kill
			case update%3 == 2 && i == 1:
				require.NoError(t, f.outage(ctx, timeout/4))
			}
			require.NoError(t, end(name), "%s", &out)
		}
		require.NoError(t, f.until(ctx, more(work, 3)), "%s", &out)
		after := leaders(t, work)
		last := before[len(before)-1]
		require.Equal(t, 1, len(after)-len(before), "hand-overs of update %d: %s, then %v\n%s",
			update, last, after[len(before):], &out)
		require.Contains(t, fresh, after[len(after)-1])
		old = fresh
	}
	done, err := work.check("done", 1)
	require.NoError(t, err)
	t.Logf("%d updates, %d pieces of work", updates, done)
}

// more is the condition that n more pieces are done.
func more(work journal, n int) func() (bool, error) {
	return show{worker: worker{journal: work}}.more(n)
}

// leaders returns who has worked, in order.
func leaders(t *testing.T, work journal) (hosts []string) {
	all, err := work.read()
	require.NoError(t, err)
	for _, e := range all {
		if len(hosts) == 0 || hosts[len(hosts)-1] != e.Host {
			hosts = append(hosts, e.Host)
		}
	}
	return hosts
}
