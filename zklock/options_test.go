package zklock_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// noDial fails the test when anything is dialled.
func noDial(t testing.TB) zklock.Option {
	return zklock.WithDialer(func(string, string, time.Duration) (net.Conn, error) {
		t.Error("dialled")
		return nil, net.ErrClosed
	})
}

func TestBadOptionsAreRefusedBeforeAnyDial(t *testing.T) {
	for name, c := range map[string]struct {
		opt  zklock.Option
		says string
	}{
		"zero value":        {zklock.Option{}, "zero value"},
		"session timeout 0": {zklock.WithSessionTimeout(0), "session timeout 0s"},
		"session timeout negative": {zklock.WithSessionTimeout(-time.Second),
			"session timeout -1s"},
		"session timeout tiny": {zklock.WithSessionTimeout(time.Millisecond),
			"session timeout 1ms"},
		"session timeout endless": {zklock.WithSessionTimeout(1000 * time.Hour),
			"session timeout 1000h"},
		"tick time 0":          {zklock.WithTickTime(0), "tick time 0s"},
		"tick time negative":   {zklock.WithTickTime(-1), "tick time -1ns"},
		"tick time endless":    {zklock.WithTickTime(1000 * time.Hour), "tick time 1000h"},
		"no scheme":            {zklock.WithAuth("", []byte("x")), `auth scheme ""`},
		"no SASL mechanism":    {zklock.WithSASL(nil), "SASL mechanism: is nil"},
		"no TLS configuration": {zklock.WithTLS(nil), "TLS configuration: is nil"},
		"no TLS function":      {zklock.WithTLSFunc(nil), "TLS function: is nil"},
		"no dialer":            {zklock.WithDialer(nil), "dialer: is nil"},
		"no logger":            {zklock.WithLogger(nil), "logger: is nil"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := zklock.Dial(context.Background(), "zk1:2181", noDial(t), c.opt)
			require.ErrorIs(t, err, zklock.ErrInvalid)
			require.ErrorContains(t, err, "zklock: dial")
			require.ErrorContains(t, err, c.says)
		})
	}
}

func TestEveryOptionOfAClientIsTaken(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv, zklock.WithSessionTimeout(20*time.Second),
			zklock.WithTickTime(3*time.Second),
			zklock.WithAuth("digest", []byte("a:b")), zklock.WithAuth("digest", []byte("c:d")),
			zklock.WithLogger(slog.New(slog.DiscardHandler)), zklock.WithHooks(zklock.Hooks{}))
		s, err := c.Session(locktest.Soon(t))
		require.NoError(t, err)
		require.Equal(t, 20*time.Second, s.Timeout())
		for _, acl := range [][]zk.ACL{zk.DigestACL(zk.PermAll, "a", "b"),
			zk.DigestACL(zk.PermAll, "c", "d")} {
			h := locktest.Lock(t, c.Mutex("/x"+acl[0].ID[:1], zklock.WithACL(acl...)))
			locktest.Unlock(t, h)
		}
	})
}

// badLockOptions are refused by every call on a lock.
var badLockOptions = map[string]struct {
	opt  zklock.LockOption
	says string
}{
	"zero value":        {zklock.LockOption{}, "zero value"},
	"wait negative":     {zklock.WithMaxWait(-time.Second), "wait -1s: is negative"},
	"max hold 0":        {zklock.WithMaxHold(0), "max hold 0s: is not positive"},
	"max hold negative": {zklock.WithMaxHold(-1), "max hold -1ns: is not positive"},
	"owner too long":    {zklock.WithOwner(strings.Repeat("x", 64<<10+1)), "owner of 65537 bytes"},
	"no ACL":            {zklock.WithACL(), "ACL: is empty"},
}

// What an option can't mean for a kind of lock is refused, by every call, before any I/O.
func TestEachKindOfLockTakesOrRefusesEachOption(t *testing.T) {
	untouched(t, func(t *testing.T, c *zklock.Client) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()                      // a call that is not refused ends with it
		refused := map[string]string{ // by kind
			"WithReentrancy":   "semaphore election job",
			"WithLocalHandoff": "rw semaphore multi election job",
		}
		for name, opt := range map[string]zklock.LockOption{
			"WithMaxWait": zklock.WithMaxWait(time.Second),
			"WithMaxHold": zklock.WithMaxHold(time.Second), "WithOwner": zklock.WithOwner("o"),
			"WithACL":          zklock.WithACL(zk.WorldACL(zk.PermAll)...),
			"WithContainer":    zklock.WithContainer(),
			"WithReentrancy":   zklock.WithReentrancy(),
			"WithLocalHandoff": zklock.WithLocalHandoff(),
		} {
			for kind, call := range map[string]locktest.Acquire{
				"mutex":     c.Mutex("/l", opt).Lock,
				"rw":        c.RWMutex("/l", opt).RLock,
				"semaphore": locktest.Permits(c.Semaphore("/l", 1, opt), 1),
				"multi":     c.MultiLock([]string{"/l"}, opt).Lock,
				"election":  locktest.Campaign(c.Election("/l", opt), "v"),
				"job": func(ctx context.Context) (context.Context, *zklock.Hold, error) {
					return ctx, nil, once(ctx, c.Job("/l", opt), "k", neverRun)
				},
			} {
				_, _, err := call(ctx)
				if slices.Contains(strings.Fields(refused[name]), kind) {
					require.ErrorIs(t, err, zklock.ErrInvalid, "%s, %s", name, kind)
					require.ErrorContains(t, err, name)
				} else {
					require.ErrorIs(t, err, context.Canceled, "%s, %s", name, kind)
				}
			}
		}
	})
}

func TestTheZnodeTellsWhoHoldsInJSON(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		h := locktest.Lock(t, c.Mutex("/l", zklock.WithOwner("batch \"7\" ü")))
		node, _ := srv.Node(h.Node())
		var id struct {
			Owner string
			Host  string
			PID   int
		}
		require.NoError(t, json.Unmarshal(node.Data, &id))
		host, err := os.Hostname()
		require.NoError(t, err)
		require.Equal(t, "batch \"7\" ü", id.Owner)
		require.Equal(t, host, id.Host)
		require.Equal(t, os.Getpid(), id.PID)

		plain := locktest.Lock(t, c.Mutex("/plain"))
		node, _ = srv.Node(plain.Node())
		require.NotContains(t, string(node.Data), "owner")
		require.NotContains(t, string(node.Data), "data")
		large := locktest.Lock(t, c.Mutex("/large", zklock.WithOwner(strings.Repeat("x", 64<<10))))
		require.NoError(t, large.Check(locktest.Soon(t)))
	})
}

// A newline in an owner, ours or a neighbour's, must not end a line of a log: every text escapes
// the owner.
func TestAnOwnerThatIsNotPrintableIsEscapedInEveryText(t *testing.T) {
	const owner, shown = "night\nly\x1b[2J", `night\nly\x1b[2J (`
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		var said []string
		a := locktest.Dial(t, srv)
		b := locktest.Dial(t, srv, zklock.WithHooks(zklock.Hooks{Queued: func(q zklock.LockInfo) {
			said = append(said, q.HolderOwner)
		}}))
		h := locktest.Lock(t, a.Mutex("/l", zklock.WithOwner(owner)))
		_, _, err := b.Mutex("/l", zklock.WithMaxWait(2*time.Second)).Lock(locktest.Soon(t))
		require.ErrorContains(t, err, "2nd in line behind "+shown)
		_, _, err = b.Mutex("/l").TryLock(locktest.Soon(t))
		require.ErrorContains(t, err, "held by "+shown)
		require.True(t, strings.HasPrefix(said[len(said)-1], shown), "%q", said)
		_, _, err = a.Mutex("/l", zklock.WithLocalHandoff(),
			zklock.WithOwner(owner)).TryLock(locktest.Soon(t))
		require.ErrorContains(t, err, "held by "+shown)
		locktest.Unlock(t, h)

		run, err := a.Job("/job", zklock.WithOwner(owner)).Once(locktest.Soon(t), "key",
			func(context.Context) error { return nil })
		require.NoError(t, err)
		require.Contains(t, run.String(), "by "+shown)

		h = locktest.Lock(t, a.Mutex("/l", zklock.WithOwner(owner)))
		line, err := locktest.Queue(locktest.Soon(t), b, "/l")
		require.NoError(t, err)
		require.Equal(t, owner, line[0].Owner, "for a program it is what was given")
		locktest.Unlock(t, h)
	})
}

func TestWithACLIsOnTheZnodeAndOnWhatIsMadeForIt(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		acl := zk.DigestACL(zk.PermAll, "team", "pw")
		ours := locktest.Dial(t, srv, zklock.WithAuth("digest", []byte("team:pw")))
		others := locktest.Dial(t, srv)
		h := locktest.Lock(t, ours.Mutex("/a/b/l", zklock.WithACL(acl...)))
		for _, path := range []string{h.Node(), "/a/b/l", "/a/b", "/a"} {
			node, there := srv.Node(path)
			require.True(t, there, path)
			require.Equal(t,
				[]zktest.ACL{{Perms: acl[0].Perms, Scheme: acl[0].Scheme,
					ID: acl[0].ID}}, node.ACL, path)
		}
		s, err := others.Session(locktest.Soon(t))
		require.NoError(t, err)
		require.ErrorIs(t, s.Delete(locktest.Soon(t), h.Node(), -1), zk.ErrNoAuth)
		_, _, err = others.Mutex("/a/b/l").Lock(locktest.Soon(t))
		require.ErrorIs(t, err, zk.ErrNoAuth)
		_, _, err = others.Mutex("/a/b/l").TryLock(locktest.Soon(t))
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.NoError(t, h.Err())
		locktest.Unlock(t, h)
	})
}

// The options of a lock, and what its holds answer, are the same for every kind.
func TestOptionsAndHoldsAreTheSameForEveryKind(t *testing.T) {
	for _, kind := range anyKinds {
		t.Run(kind.name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dir, data, a := s.Dir("/locks/a"), s.Dir("/data"), s.Client()
				s.Dir(dir + "-2") // for the kind that takes two
				h := s.Take(kind.lock(a.Client, dir, zklock.WithOwner("nightly"),
					zklock.WithMaxHold(time.Hour)))
				began := time.Now()
				write := func() error {
					_, err := h.Multi(s.Context(),
						session.OpCreate{Path: data + "/x", ACL: session.WorldACL(),
							Mode: session.PersistentSequential})
					return err
				}
				s.Owned(a, h)
				require.NoError(s, h.Check(s.Context()))
				require.NoError(s, write())

				_, _, err := kind.lock(s.Client().Client, dir,
					zklock.WithMaxWait(time.Minute))(s.Context())
				require.ErrorIs(s, err, zklock.ErrBusy)
				require.NotErrorIs(s, err, context.DeadlineExceeded, "the caller had none")
				require.ErrorContains(s, err, "2nd in line behind nightly")
				require.Equal(s, time.Minute, time.Since(began))

				next := s.Start(kind.lock(s.Client().Client, dir)).Get(s)
				require.Equal(s, time.Hour, time.Since(began))
				require.ErrorIs(s, h.Err(), zklock.ErrMaxHold)
				require.ErrorIs(s, h.Unlock(), zklock.ErrMaxHold)
				require.ErrorIs(s, write(), zklock.ErrLost)
				require.Greater(s, next.Token(), h.Token())
				s.Unlock(next)
				s.NothingLeft(dir)
			})
		})
	}
}

// WithContainer: the ensemble deletes the empty directory, and tokens grow across its lives.
func TestAContainerGoesAndComesBackForEveryKind(t *testing.T) {
	for _, kind := range anyKinds {
		t.Run(kind.name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				s.Dir("/locks")
				lock := kind.lock(s.Client().Client, "/locks/key", zklock.WithContainer())
				var last zklock.Token
				for range 3 {
					h := s.Take(lock)
					require.Greater(s, h.Token(), last)
					last = h.Token()
					s.Unlock(h)
					s.Until(5*time.Minute, "the container has gone", func() bool {
						return len(s.Server.Children("/locks")) == 0
					})
				}
			})
		})
	}
}
