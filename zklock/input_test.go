package zklock_test

import (
	"context"
	"strings"
	"testing"

	"github.com/zklock/locker/internal/locktest"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// mutexCalls are all calls of a Mutex.
var mutexCalls = map[string]func(ctx context.Context, m *zklock.Mutex) error{
	"Lock":    func(ctx context.Context, m *zklock.Mutex) error { _, err := m.Lock(ctx); return err },
	"TryLock": func(ctx context.Context, m *zklock.Mutex) error { _, err := m.TryLock(ctx); return err },
	"Do": func(ctx context.Context, m *zklock.Mutex) error {
		return m.Do(ctx, func(context.Context) error { panic("called") })
	},
}

var badPaths = map[string]string{ // and the rule that each breaks
	"":                              "is empty",
	"/":                             "is the root",
	"locks/a":                       "does not begin with a slash",
	"/locks/":                       "ends with a slash",
	"/locks//a":                     "empty component",
	"/locks/./a":                    "relative component .",
	"/locks/../a":                   "relative component ..",
	"/locks/..":                     "relative component ..",
	"/a\x00b":                       "excludes",
	"/a\n":                          "excludes",
	"/\xff":                         "UTF-8",
	"/😀":                            "excludes",
	"/zookeeper":                    "belongs to ZooKeeper itself",
	"/zookeeper/quota":              "belongs to ZooKeeper itself",
	"/" + strings.Repeat("x", 5000): "4096",
	"/" + strings.Repeat("x", 4090): "no room for a contender's name",
}

// untouched runs a test that must not send a request.
func untouched(t *testing.T, fn func(t *testing.T, c *zklock.Client)) {
	t.Helper()
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		fn(t, c)
		made := srv.Requests()
		delete(made, zktest.OpConnect)
		delete(made, zktest.OpPing)
		require.Empty(t, made, "no I/O")
	})
}

func TestABadPathIsRefusedByEveryCallBeforeAnyRequest(t *testing.T) {
	untouched(t, func(t *testing.T, c *zklock.Client) {
		for path, rule := range badPaths {
			m := c.Mutex(path)
			for name, call := range mutexCalls {
				for range 2 { // every call, not the first only
					err := call(context.Background(), m)
					require.ErrorIs(t, err, zklock.ErrPath, "%s %.40q", name, path)
					require.ErrorContains(t, err, rule, name)
					require.True(t, strings.HasPrefix(err.Error(), "zklock: "), err.Error())
				}
			}
		}
		err := mutexCalls["Lock"](context.Background(), c.Mutex("/locks/../a"))
		require.ErrorContains(t, err, `"/locks/../a"`, "the message names the path")
	})
}

func TestABadLockOptionIsRefusedByEveryCallBeforeAnyRequest(t *testing.T) {
	untouched(t, func(t *testing.T, c *zklock.Client) {
		for name, bad := range badLockOptions {
			m := c.Mutex("/l", zklock.WithOwner("me"), bad.opt)
			for call, do := range mutexCalls {
				err := do(context.Background(), m)
				require.ErrorIs(t, err, zklock.ErrOption, "%s: %s", name, call)
				require.ErrorContains(t, err, bad.says, "%s: %s", name, call)
			}
		}
	})
}

func TestAPathAndItsContextAreCheckedInThatOrder(t *testing.T) {
	untouched(t, func(t *testing.T, c *zklock.Client) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		for name, call := range mutexCalls {
			require.ErrorIs(t, call(ctx, c.Mutex("bad")), zklock.ErrPath, name)
			require.ErrorIs(t, call(ctx, c.Mutex("/good")), context.Canceled, name)
		}
	})
}

func TestTheLongestPathThatIsTakenWorks(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		longest := 0
		for n := 3900; n <= 4096; n++ {
			if _, err := c.Mutex("/" + strings.Repeat("x", n-1)).TryLock(locktest.Soon(t)); err == nil {
				longest = n
			} else {
				require.ErrorIs(t, err, zklock.ErrPath)
				break
			}
		}
		require.Greater(t, longest, 3990)
	})
}
