package zklock_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// journal records the calls of the hooks and the log of one client.
type journal struct {
	diary diary
	log   locktest.Buffer
}

func dialWithJournal(t *testing.T, srv *zktest.Server) (*journal, *zklock.Client) {
	t.Helper()
	var j journal
	c := locktest.Dial(t, srv, zklock.WithHooks(j.diary.hooks()),
		zklock.WithLogger(slog.New(slog.NewJSONHandler(&j.log,
			&slog.HandlerOptions{Level: slog.LevelDebug}))))
	j.told(t, "session connected")
	return &j, c
}

// journalLines are the log lines for each hook.
var journalLines = map[string]string{
	"session connected":    "DEBUG zklock: session connected",
	"session disconnected": "WARN zklock: session disconnected; reconnecting",
	"session over":         "WARN zklock: session lost, and its znodes with it",
	"asked":                "DEBUG zklock: lock asked for",
	"queued 1":             "DEBUG zklock: lock queued",
	"acquired":             "DEBUG zklock: lock acquired",
	"failed":               "DEBUG zklock: lock not acquired",
	"released":             "DEBUG zklock: lock released",
	"lost":                 "WARN zklock: lock lost: its context has ended",
	"retried":              "DEBUG zklock: lock step retried",
}

// electionLines are the log lines of an election, where they are others.
var electionLines = map[string]string{
	"acquired": "INFO zklock: leadership won",
	"released": "INFO zklock: leadership given up",
	"lost":     "WARN zklock: leadership lost: its context has ended",
}

// told checks the hooks' calls since the last check, in order, and that the log has the same.
func (j *journal) told(t *testing.T, want ...string) (infos []any) {
	t.Helper()
	synctest.Wait() // until all hooks have been called
	text := j.log.String()
	got := j.diary.read()
	j.diary.mu.Lock()
	infos = j.diary.infos
	j.diary.mu.Unlock()
	j.forget()
	require.Equal(t, want, got)
	var logged, expected []string
	for line := range bytes.Lines([]byte(text)) {
		var entry struct{ Level, Msg string }
		require.NoError(t, json.Unmarshal(line, &entry))
		logged = append(logged, entry.Level+" "+entry.Msg)
	}
	isElection := func(info any) bool {
		lock, ok := info.(zklock.LockInfo)
		return ok && lock.Kind == zklock.KindElection
	}
	for _, hook := range want {
		line := journalLines[hook]
		if slices.ContainsFunc(infos, isElection) {
			line = cmp.Or(electionLines[hook], line)
		}
		expected = append(expected, line)
	}
	require.Equal(t, expected, logged)
	return infos
}

// forget excludes what was recorded so far from the next check.
func (j *journal) forget() {
	synctest.Wait()
	j.log.Reset()
	j.diary.read()
	j.diary.mu.Lock()
	j.diary.infos = nil
	j.diary.mu.Unlock()
}

// callsOf returns the numbers of the calls that were reported.
func callsOf(infos []any) (calls []uint64) {
	for _, i := range infos {
		calls = append(calls, i.(zklock.LockInfo).Call)
	}
	return calls
}

// journalKind is one kind of lock, with its simplest call.
type journalKind struct {
	name  string
	kind  zklock.LockKind
	lock  func(c *zklock.Client) locktest.Acquire
	other func(c *zklock.Client) locktest.Acquire // makes lock wait
}

func journalKinds() []journalKind {
	mutex := func(c *zklock.Client) locktest.Acquire { return c.Mutex("/l").Lock }
	write := func(c *zklock.Client) locktest.Acquire { return c.RWMutex("/l").Lock }
	read := func(c *zklock.Client) locktest.Acquire { return c.RWMutex("/l").RLock }
	permits := func(c *zklock.Client) locktest.Acquire {
		return locktest.Permits(c.Semaphore("/l", 3), 2)
	}
	return []journalKind{
		{"mutex", "mutex", mutex, mutex},
		{"mutex with local handoff", "mutex", func(c *zklock.Client) locktest.Acquire {
			return c.Mutex("/l", zklock.WithLocalHandoff()).Lock
		}, mutex},
		{"write", "write", write, read},
		{"read", "read", read, write},
		{"semaphore", "semaphore", permits, permits},
		{"multi", "multi",
			func(c *zklock.Client) locktest.Acquire {
				return c.MultiLock([]string{"/k",
					"/l"}).Lock
			}, mutex},
		{"election", "election", func(c *zklock.Client) locktest.Acquire {
			return locktest.Campaign(c.Election("/l"), "v")
		}, mutex},
	}
}

func TestEveryKindOfLockTellsTheSameTale(t *testing.T) {
	for _, k := range journalKinds() {
		t.Run(k.name, func(t *testing.T) {
			locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
				j, c := dialWithJournal(t, srv)
				other := locktest.Dial(t, srv)
				type key struct{}
				ctx, cancel := context.WithCancel(context.WithValue(context.Background(), key{},
					"the request's"))
				checkAll := func(infos []any) {
					t.Helper()
					calls := callsOf(infos)
					for i, info := range infos {
						require.Equal(t, calls[0], calls[i])
						lock := info.(zklock.LockInfo)
						require.Equal(t, k.kind, lock.Kind)
						require.Equal(t, map[zklock.LockKind]int{zklock.KindSemaphore: 2}[k.kind],
							lock.Permits)
						require.Equal(t, "the request's", lock.Context.Value(key{}))
						require.NoError(t, lock.Context.Err(), "whatever became of the request")
					}
				}

				_, h, err := k.lock(c)(ctx)
				require.NoError(t, err)
				infos := j.told(t, "asked", "acquired")
				time.Sleep(10 * time.Minute)
				require.NoError(t, h.Unlock())
				released := j.told(t, "released")
				checkAll(append(infos, released...))
				require.Equal(t, 10*time.Minute, released[0].(zklock.LockInfo).Held)

				// Behind another holder, until it gives up. It is queued twice: after 300 ms it
				// knows who the holder is.
				_, theirs, err := k.other(other)(locktest.Soon(t))
				require.NoError(t, err)
				short, done := context.WithTimeout(ctx, 2*time.Second)
				_, _, err = k.lock(c)(short)
				done()
				require.ErrorIs(t, err, context.DeadlineExceeded)
				infos = j.told(t, "asked", "queued 1", "queued 1", "failed")
				checkAll(infos)
				require.Equal(t, theirs.Node(), infos[1].(zklock.LockInfo).HolderNode)
				require.NotEmpty(t, infos[2].(zklock.LockInfo).HolderOwner)
				require.Equal(t, 2*time.Second, infos[3].(zklock.LockInfo).Waited)

				// Behind another holder, and then lost.
				waits := locktest.Go(ctx, k.lock(c))
				time.Sleep(2 * time.Second)
				infos = j.told(t, "asked", "queued 1", "queued 1")
				require.NoError(t, theirs.Unlock())
				<-waits.Done
				require.NoError(t, waits.Err)
				h = waits.Hold
				infos = append(infos, j.told(t, "acquired")...)
				require.Equal(t, 2*time.Second, infos[3].(zklock.LockInfo).Waited)
				cancel()
				time.Sleep(time.Second)
				require.NoError(t, srv.Delete(h.Node()))
				infos = append(infos, j.told(t, "lost")...)
				checkAll(infos)
				require.ErrorIs(t, infos[4].(zklock.LockInfo).Err, zklock.ErrNodeDeleted)
			})
		})
	}
}

func TestReentrantCallsAreAskedForAndJoinTheHoldThatIsReleasedOnce(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		j, c := dialWithJournal(t, srv)
		m := c.Mutex("/l", zklock.WithReentrancy())
		outer := locktest.Lock(t, m)
		first := callsOf(j.told(t, "asked", "acquired"))[0]
		_, inner, err := m.Lock(outer.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"asked", "acquired"}, j.diary.read())
		joined := j.diary.lastLock("acquired")
		require.Greater(t, joined.Call, first)
		require.Equal(t, first, joined.Joined)
		require.Equal(t, outer.Token(), joined.Token)
		require.Equal(t, outer.Node(), joined.Node)
		synctest.Wait()
		require.Contains(t, j.log.String(), `"msg":"zklock: lock acquired again"`)
		j.forget()
		locktest.Unlock(t, inner)
		require.Empty(t, j.diary.read(), "still held")
		locktest.Unlock(t, outer)
		require.Equal(t, first, j.told(t, "released")[0].(zklock.LockInfo).Call)

		// Without the option it fails, and a hook reports that.
		plain := c.Mutex("/l")
		h := locktest.Lock(t, plain)
		j.forget()
		_, _, err = plain.Lock(h.Context())
		require.ErrorIs(t, err, zklock.ErrDeadlock)
		infos := j.told(t, "asked", "failed")
		require.ErrorIs(t, infos[1].(zklock.LockInfo).Err, zklock.ErrDeadlock)
	})
}

func TestHooksThatAreGivenTogetherAreAllTold(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		var first, second diary
		var asked []uint64
		c := locktest.Dial(t, srv, zklock.WithHooks(first.hooks()),
			zklock.WithHooks(zklock.Hooks{}),
			zklock.WithHooks(zklock.Hooks{Asked: func(i zklock.LockInfo) {
				asked = append(asked, i.Call)
			}}), zklock.WithHooks(second.hooks()))
		require.Equal(t, []string{"session connected"}, first.read())
		require.Equal(t, []string{"session connected"}, second.read())
		locktest.Unlock(t, locktest.Lock(t, c.Mutex("/l")))
		want := []string{"asked", "acquired", "released"}
		require.Equal(t, want, first.read())
		require.Equal(t, want, second.read())
		require.Len(t, asked, 1)
	})
}
