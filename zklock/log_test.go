package zklock_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/unsealed"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// withDefaultLog runs fn, beside no other test, with slog's default as a program has it, and with a
// client that was opened before the program set that. It returns the lines.
func withDefaultLog(
	t *testing.T, fn func(t *testing.T, srv *zktest.Server, c *zklock.Client),
	opts ...zklock.Option,
) []string {
	t.Helper()
	var text locktest.Buffer
	was := slog.Default()
	defer slog.SetDefault(was)
	locktest.BubbleAlone(t, func(t *testing.T, srv *zktest.Server) {
		c, err := zklock.Dial(t.Context(), srv.Addr(), append(opts, zklock.WithDialer(srv.Dial))...)
		require.NoError(t, err)
		slog.SetDefault(slog.New(slog.NewTextHandler(&text,
			&slog.HandlerOptions{Level: slog.LevelDebug})))
		fn(t, srv, c)
		synctest.Wait()
		require.NoError(t, c.Close())
	})
	return strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
}

// Nobody has configured the library. What goes wrong is told all the same, with what a reader needs
// to know; what goes well is not.
func TestWhatGoesWrongIsLoggedWithoutAnyOption(t *testing.T) {
	for name, c := range map[string]struct {
		fails func(t *testing.T, srv *zktest.Server, c *zklock.Client)
		lines [][]string // of each line parts, in any order
	}{
		"nothing": {func(t *testing.T, _ *zktest.Server, c *zklock.Client) {
			locktest.Unlock(t, locktest.Lock(t, c.Mutex("/l")))
		}, [][]string{{""}}},
		"a lost lock": {func(t *testing.T, srv *zktest.Server, c *zklock.Client) {
			hold := locktest.Lock(t, c.Mutex("/l"))
			time.Sleep(1234567 * time.Microsecond)
			require.NoError(t, srv.Delete(hold.Node()))
			<-hold.Context().Done()
		}, [][]string{{"level=WARN", "zklock: lock lost", "path=/l", "held=1.235s",
			"deleted by somebody else"}}},
		"a lock that its release finds deleted": {func(t *testing.T, srv *zktest.Server,
			c *zklock.Client) {
			hold := locktest.Lock(t, c.Mutex("/l"))
			require.NoError(t, srv.Delete(hold.Node())) // a fresh hold does not watch its znode yet
			require.ErrorIs(t, hold.Unlock(), zklock.ErrNodeDeleted)
		}, [][]string{{"level=WARN", "zklock: lock found deleted at its release", "path=/l",
			"deleted by somebody else"}}},
		"a refused release": {func(t *testing.T, _ *zktest.Server, c *zklock.Client) {
			hold := locktest.Lock(t, c.Mutex("/l"))
			grant(t, c, "/l", allButDelete)
			require.ErrorIs(t, hold.Unlock(), zk.ErrNoAuth)
		}, [][]string{{"level=WARN", "zklock: own znode can't be deleted",
			"grant DELETE at its path", "path=/l ", "node=/l/", "refused by an access list"}}},
		"a semaphore of another size": {func(t *testing.T, _ *zktest.Server, c *zklock.Client) {
			locktest.Unlock(t, locktest.Take(t, locktest.Permits(c.Semaphore("/s", 3), 1)))
			locktest.Unlock(t, locktest.Take(t, locktest.Permits(c.Semaphore("/s", 5), 1)))
		}, [][]string{{"level=WARN", "zklock: semaphore has another size", "path=/s", "ensemble=3",
			"program=5"}}},
		"a lost term, and its work's error": {func(t *testing.T, srv *zktest.Server,
			c *zklock.Client) {
			term := 0
			require.NoError(t,
				c.Election("/e").Run(t.Context(), nil,
					func(ctx context.Context, hold *zklock.Hold) error {
						if term++; term > 1 {
							return nil
						}
						require.NoError(t, srv.Delete(hold.Node()))
						<-ctx.Done()
						synctest.Wait() // until the loss has been logged, by another goroutine
						return errors.New("the books don't balance")
					}))
		}, [][]string{
			{"level=INFO", "zklock: leadership won", "path=/e"},
			{"level=WARN", "zklock: leadership lost", "path=/e"},
			{"level=WARN", "zklock: lead failed after its term was lost",
				"the books don't balance"},
			{"level=INFO", "zklock: leadership won", "path=/e"},
			{"level=INFO", "zklock: leadership given up", "path=/e"},
		}},
		"a lost connection": {func(t *testing.T, srv *zktest.Server, c *zklock.Client) {
			locktest.Unlock(t, locktest.Lock(t, c.Mutex("/l")))
			srv.DropConnections()
			locktest.Unlock(t, locktest.Lock(t, c.Mutex("/l")))
		}, [][]string{{"level=WARN", "zklock: session disconnected", "server=",
			"closed the connection"},
			{"level=INFO", "zklock: session connected", "server=", "after="}}},
		"a lost session": {func(t *testing.T, srv *zktest.Server, c *zklock.Client) {
			locktest.Unlock(t, locktest.Lock(t, c.Mutex("/l")))
			s, err := unsealed.Session(t.Context(), c)
			require.NoError(t, err)
			srv.Leader().Down()
			<-s.Done()
			time.Sleep(6 * time.Second) // after 5 s the next session's attempts are logged, too
			srv.Leader().Up()
			locktest.Unlock(t, locktest.Lock(t, c.Mutex("/l")))
		}, [][]string{
			{"level=WARN", "zklock: session disconnected; reconnecting"},
			{"level=WARN", "zklock: no server reachable", "for=5s", "cause="},
			{"level=WARN", "zklock: session lost: the ensemble may have ended it"},
			{"level=WARN", "zklock: no server reachable", "for=5s", "servers="},
			{"level=INFO", "zklock: session connected", "after="},
		}},
		"a session that the ensemble ends": {func(t *testing.T, srv *zktest.Server,
			c *zklock.Client) {
			s, err := unsealed.Session(t.Context(), c)
			require.NoError(t, err)
			require.NoError(t, srv.Expire(s.ID()))
			srv.DropConnections()
			locktest.Unlock(t, locktest.Lock(t, c.Mutex("/l")))
		}, [][]string{
			{"level=WARN", "zklock: session disconnected; reconnecting"},
			{"level=WARN",
				"zklock: session lost: the ensemble has ended it, and has deleted its znodes"},
			{"level=INFO", "zklock: session connected", "after="},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			lines := withDefaultLog(t, c.fails)
			require.Len(t, lines, len(c.lines), "%q", lines)
			for i, parts := range c.lines {
				for _, part := range parts {
					require.Contains(t, lines[i], part)
				}
			}
			require.Equal(t, []string{""}, withDefaultLog(t, c.fails, zklock.WithoutLog()),
				"one word silences all")
		})
	}
}

// A thousand locks are lost at once.
func TestTheDefaultLogIsNotFlooded(t *testing.T) {
	lines := withDefaultLog(t, func(t *testing.T, srv *zktest.Server, c *zklock.Client) {
		lose := func(n int) {
			for range n {
				hold := locktest.Lock(t, c.Mutex("/l"))
				require.NoError(t, srv.Delete(hold.Node()))
				<-hold.Context().Done()
				synctest.Wait()
			}
		}
		lose(50)
		time.Sleep(2 * time.Minute)
		lose(1)
	})
	require.Len(t, lines, 11)
	require.NotContains(t, lines[9], "left_out")
	require.Contains(t, lines[10], "left_out_before=40")
}

// liveOnly logs nothing for a context that may end.
type liveOnly struct{ slog.Handler }

func (h liveOnly) Enabled(ctx context.Context, l slog.Level) bool {
	return ctx.Done() == nil && h.Handler.Enabled(ctx, l)
}

// A line may be written after the end of the call's context.
func TestTheLogIsAskedWithAContextThatNeverEnds(t *testing.T) {
	var text locktest.Buffer
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		log := slog.New(liveOnly{slog.NewTextHandler(&text, nil)})
		c := locktest.Dial(t, srv, zklock.WithLogger(log))
		ctx, cancel := context.WithCancel(t.Context())
		_, h, err := c.Mutex("/l").Lock(ctx)
		require.NoError(t, err)
		cancel()
		require.NoError(t, srv.Delete(h.Node()))
		<-h.Context().Done()
		synctest.Wait()
		require.Contains(t, text.String(), "lock lost")
	})
}
