package zklock_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// apiMutexCalls are all calls of a Mutex.
var apiMutexCalls = map[string]func(ctx context.Context, m *zklock.Mutex) error{
	"Lock":    func(ctx context.Context, m *zklock.Mutex) error { _, err := m.Lock(ctx); return err },
	"TryLock": func(ctx context.Context, m *zklock.Mutex) error { _, err := m.TryLock(ctx); return err },
	"Do": func(ctx context.Context, m *zklock.Mutex) error {
		return m.Do(ctx, func(context.Context) error { panic("called") })
	},
}

var apiBadPaths = map[string]string{ // and the rule that each breaks
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

// apiUntouched runs a test that must not send a request.
func apiUntouched(t *testing.T, fn func(t *testing.T, c *zklock.Client)) {
	t.Helper()
	apiBubble(t, func(t *testing.T, srv *zktest.Server) {
		c := apiDial(t, srv)
		fn(t, c)
		made := srv.Requests()
		delete(made, zktest.OpConnect)
		delete(made, zktest.OpPing)
		require.Empty(t, made, "no I/O")
	})
}

func TestABadPathIsRefusedByEveryCallBeforeAnyRequest(t *testing.T) {
	apiUntouched(t, func(t *testing.T, c *zklock.Client) {
		for path, rule := range apiBadPaths {
			m := c.Mutex(path)
			for name, call := range apiMutexCalls {
				for range 2 { // every call, not the first only
					err := call(context.Background(), m)
					require.ErrorIs(t, err, zklock.ErrPath, "%s %.40q", name, path)
					require.ErrorContains(t, err, rule, name)
					require.True(t, strings.HasPrefix(err.Error(), "zklock: "), err.Error())
				}
			}
		}
		err := apiMutexCalls["Lock"](context.Background(), c.Mutex("/locks/../a"))
		require.ErrorContains(t, err, `"/locks/../a"`, "the message names the path")
	})
}

func TestABadLockOptionIsRefusedByEveryCallBeforeAnyRequest(t *testing.T) {
	apiUntouched(t, func(t *testing.T, c *zklock.Client) {
		for name, bad := range apiBadLockOptions {
			m := c.Mutex("/l", zklock.WithOwner("me"), bad.opt)
			for call, do := range apiMutexCalls {
				err := do(context.Background(), m)
				require.ErrorIs(t, err, zklock.ErrOption, "%s: %s", name, call)
				require.ErrorContains(t, err, bad.says, "%s: %s", name, call)
			}
		}
	})
}

func TestAPathAndItsContextAreCheckedInThatOrder(t *testing.T) {
	apiUntouched(t, func(t *testing.T, c *zklock.Client) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		for name, call := range apiMutexCalls {
			require.ErrorIs(t, call(ctx, c.Mutex("bad")), zklock.ErrPath, name)
			require.ErrorIs(t, call(ctx, c.Mutex("/good")), context.Canceled, name)
		}
	})
}

func TestTheLongestPathThatIsTakenWorks(t *testing.T) {
	apiBubble(t, func(t *testing.T, srv *zktest.Server) {
		c := apiDial(t, srv)
		longest := 0
		for n := 3900; n <= 4096; n++ {
			if _, err := c.Mutex("/" + strings.Repeat("x", n-1)).TryLock(apiWithin(t, apiSoon)); err == nil {
				longest = n
			} else {
				require.ErrorIs(t, err, zklock.ErrPath)
				break
			}
		}
		require.Greater(t, longest, 3990)
	})
}
