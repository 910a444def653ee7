package hostile_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"path"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zklock/lockhttp"
	"github.com/zklock/locker/zktest"
)

// mayCreate is the access list of a directory and its contenders: we may do everything, others may create and list.
func mayCreate() []zk.ACL {
	return append(zk.DigestACL(zk.PermAll, "we", "secret"), zk.WorldACL(zk.PermCreate|zk.PermRead)...)
}

func attacked(t *testing.T, srv *zktest.Server) *zklock.Client {
	c, err := zklock.Dial(t.Context(), srv.Addr(), zklock.WithDialer(srv.Dial), zklock.WithAuth("digest", []byte("we:secret")))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func attacker(t *testing.T, srv *zktest.Server) *session.Session {
	s, err := session.Open(t.Context(), srv.Addr(), session.Config{Dial: srv.Dial})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// Break removes a holder while it is not listening, and the neighbour creates a znode of the same name.
func TestANeighbourCannotHideARemovalByANodeOfTheSameName(t *testing.T) {
	for _, how := range []string{"before the watch", "while cut off", "heard"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := zktest.Run(t, zktest.WithoutListener())
				opt := zklock.WithACL(mayCreate()...)
				a, b, admin, evil := attacked(t, srv), attacked(t, srv), attacked(t, srv), attacker(t, srv)
				h, err := a.Mutex(dir, opt).Lock(t.Context())
				require.NoError(t, err)
				got := make(chan *zklock.Hold, 1)
				go func() {
					next, err := b.Mutex(dir, opt).Lock(t.Context())
					if err != nil {
						t.Error(err)
					}
					got <- next
				}()
				synctest.Wait()
				remove := func() {
					require.NoError(t, admin.Break(t.Context(), dir, h.Token()))
					_, err := evil.Create(t.Context(), h.Node(), nil, session.Ephemeral, zk.WorldACL(zk.PermAll))
					require.NoError(t, err)
				}
				switch how {
				case "before the watch":
					remove()
				case "while cut off":
					time.Sleep(2 * time.Second)
					s, err := a.Session(t.Context())
					require.NoError(t, err)
					cut := srv.Inject(zktest.Freeze().Session(s.ID()))
					remove()
					srv.DropConnections()
					cut.Remove()
				case "heard":
					time.Sleep(2 * time.Second)
					remove()
				}
				var next *zklock.Hold
				select {
				case next = <-got:
				case <-time.After(time.Minute):
				}
				time.Sleep(30 * time.Second)
				if next != nil && next.Err() == nil && h.Err() == nil {
					t.Errorf("TWO HOLDERS, 30 s after the removal: %s (Check: %v) and %s", h.Node(), h.Check(t.Context()), next.Node())
				}
				h.Unlock(context.Background())
				if next != nil {
					next.Unlock(context.Background())
				}
			})
		})
	}
}

// A lost holder's lock delay is waited out even if the neighbour creates a znode of the lost one's name at once.
func TestANeighbourCannotShortenALockDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Run(t, zktest.WithoutListener())
		opts := []zklock.LockOption{zklock.WithACL(mayCreate()...), zklock.WithLockDelay(time.Minute)}
		a, b, evil := attacked(t, srv), attacked(t, srv), attacker(t, srv)
		h, err := a.Mutex(dir, opts...).Lock(t.Context())
		require.NoError(t, err)
		got := make(chan time.Time, 1)
		go func() {
			next, err := b.Mutex(dir, opts...).Lock(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			got <- time.Now()
			next.Unlock(context.Background())
		}()
		time.Sleep(2 * time.Second)
		// The neighbour is faster than the next in line: its create follows the session's end, and b's reads are slow.
		slow := srv.Inject(zktest.DelayReply(50 * time.Millisecond).Op(zktest.OpGetData))
		s, err := a.Session(t.Context())
		require.NoError(t, err)
		lost := time.Now()
		require.NoError(t, srv.Expire(s.ID()))
		_, err = evil.Create(t.Context(), h.Node(), nil, session.Ephemeral, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		at := <-got
		slow.Remove()
		require.GreaterOrEqual(t, at.Sub(lost), time.Minute, "the lost holder's delay was not waited out")
	})
}

// Break removes the contender that Queue shows with the token, and no other.
func TestANeighbourCannotMakeBreakRemoveAnotherContender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Run(t, zktest.WithoutListener())
		opt := zklock.WithACL(mayCreate()...)
		a, admin, evil := attacked(t, srv), attacked(t, srv), attacker(t, srv)
		h, err := a.RWMutex(dir, opt).RLock(t.Context())
		require.NoError(t, err)
		forged := fmt.Sprintf("%s/!-0x%x-__READ__-000000001", dir, int64(h.Token()))
		_, err = evil.Create(t.Context(), forged, nil, session.Ephemeral, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		line, err := admin.Queue(t.Context(), dir)
		require.NoError(t, err)
		for _, k := range line {
			t.Logf("%s holds=%v token=%d session=%#x", k.Node, k.Holds, k.Token, k.Session)
		}
		require.Equal(t, forged, line[0].Node)
		require.NoError(t, admin.Break(t.Context(), dir, line[0].Token))
		time.Sleep(time.Second)
		require.NoError(t, h.Err(), "an innocent hold was ended instead of the neighbour's")
	})
}

// A waiter requests a bounded number of the names that begin with its id, however many the neighbour has created.
func TestANeighbourCannotMakeAWaiterSendARequestForEachOfManyNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Run(t, zktest.WithoutListener())
		opt := zklock.WithACL(mayCreate()...)
		a, b, evil := attacked(t, srv), attacked(t, srv), attacker(t, srv)
		h, err := a.Mutex(dir, opt).Lock(t.Context())
		require.NoError(t, err)
		// An unreadable predecessor makes it list from time to time.
		_, err = evil.Create(t.Context(), dir+"/~-lock-0000000000", nil, session.Ephemeral, zk.WorldACL(zk.PermCreate))
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			if next, err := b.Mutex(dir, opt).Lock(ctx); err == nil {
				next.Unlock(context.Background())
			}
		}()
		synctest.Wait()
		var id string
		for _, name := range srv.Children(dir) {
			if name != path.Base(h.Node()) && !strings.HasPrefix(name, "~") {
				id = name[:strings.LastIndex(name, "-")+1]
			}
		}
		const many = 2000
		for i := range many {
			_, err := evil.Create(t.Context(), fmt.Sprintf("%s/%sx%d", dir, id, i), nil, session.Ephemeral, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
		}
		require.NoError(t, h.Unlock(t.Context()))
		before := srv.Requests()[zktest.OpExists]
		time.Sleep(10 * time.Second)
		n := srv.Requests()[zktest.OpExists] - before
		t.Logf("%d exists; all %v", n, srv.Requests())
		require.Less(t, n, 100, "requests of one waiter in ten seconds")
	})
}

// Waiters store, and show, only the beginning of a long name that the neighbour has made.
func TestANeighbourCannotMakeWaitersStoreALongName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Run(t, zktest.WithoutListener())
		opt := zklock.WithACL(mayCreate()...)
		longest := 0
		c, err := zklock.Dial(t.Context(), srv.Addr(), zklock.WithDialer(srv.Dial), zklock.WithAuth("digest", []byte("we:secret")),
			zklock.WithHooks(zklock.Hooks{Queued: func(q zklock.QueuedInfo) { longest = max(longest, len(q.Holder)) }}))
		require.NoError(t, err)
		defer c.Close()
		h, err := c.Mutex(dir, opt).Lock(t.Context())
		require.NoError(t, err)
		require.NoError(t, h.Unlock(t.Context()))
		const size, waiters = 900 << 10, 100
		require.NoError(t, srv.Create(dir+"/"+strings.Repeat("x", size)+"-lock-0000000000", nil)) // a session checks its own paths
		ctx, cancel := context.WithCancel(t.Context())
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		var all sync.WaitGroup
		for range waiters {
			all.Go(func() {
				if h, err := c.Mutex(dir, opt).Lock(ctx); err == nil {
					h.Unlock(context.Background())
				}
			})
			synctest.Wait()
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		runtime.GC()
		runtime.ReadMemStats(&after)
		per := (int(after.HeapAlloc) - int(before.HeapAlloc)) / waiters
		rec := httptest.NewRecorder()
		lockhttp.StatusHandler(c).ServeHTTP(rec, httptest.NewRequest("GET", "/?format=json", nil))
		t.Logf("%d bytes of heap for each waiter; hooks were told %d bytes; the status page has %d bytes", per, longest, rec.Body.Len())
		cancel()
		all.Wait()
		require.Less(t, per, 100<<10, "bytes of heap for each of %d waiters", waiters)
		require.Less(t, rec.Body.Len(), 1<<20)
	})
}

// Observers continue when a neighbour that appeared to lead, with a znode that they may not read, has gone.
func TestANeighbourCannotEndObservers(t *testing.T) {
	for _, version := range []zktest.Version{zktest.Version38, zktest.Version39} {
		synctest.Test(t, func(t *testing.T) {
			srv := zktest.Run(t, zktest.WithoutListener(), zktest.WithVersion(version))
			opt := zklock.WithACL(mayCreate()...)
			a, b, evil := attacked(t, srv), attacked(t, srv), attacker(t, srv)
			l, err := a.Election(dir, opt).Campaign(t.Context(), []byte("first"))
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var seen []string
			over := make(chan struct{})
			go func() {
				defer close(over)
				for l, err := range b.Election(dir, opt).Observe(ctx) {
					seen = append(seen, fmt.Sprintf("%s %v", l.Value, err))
				}
			}()
			synctest.Wait()
			node, err := evil.Create(t.Context(), dir+"/x-lock-0000000009", nil, session.Ephemeral, zk.WorldACL(zk.PermCreate))
			require.NoError(t, err)
			require.NoError(t, l.Resign(t.Context()))
			time.Sleep(5 * time.Second)
			require.NoError(t, srv.Delete(node.Path))
			time.Sleep(5 * time.Second)
			l, err = a.Election(dir, opt).Campaign(t.Context(), []byte("second"))
			require.NoError(t, err)
			time.Sleep(5 * time.Second)
			synctest.Wait()
			select {
			case <-over:
				t.Errorf("the observer has ended: %q", seen)
			default:
				require.Contains(t, seen[len(seen)-1], "second")
			}
			cancel()
			<-over
			l.Resign(t.Context())
		})
	}
}

// Candidates continue to campaign when the neighbour's znode of another kind, or with their number, is gone.
func TestANeighbourCannotEndRun(t *testing.T) {
	for _, name := range []string{"x-lease-3-0000000000", "x-lock-0000000002", "x-__READ__0000000000"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := zktest.Run(t, zktest.WithoutListener(), zktest.WithVersion(zktest.Version39))
				opt := zklock.WithACL(mayCreate()...)
				a, evil := attacked(t, srv), attacker(t, srv)
				ctx, cancel := context.WithCancel(t.Context())
				over := make(chan error, 1)
				terms := 0
				go func() {
					over <- a.Election(dir, opt).Run(ctx, nil, func(ctx context.Context, l *zklock.Leadership) error {
						terms++
						<-ctx.Done()
						return ctx.Err()
					})
				}()
				time.Sleep(2 * time.Second)
				synctest.Wait()
				require.Equal(t, 1, terms)
				node, err := evil.Create(t.Context(), dir+"/"+name, nil, session.Ephemeral, zk.WorldACL(zk.PermCreate))
				require.NoError(t, err)
				s, err := a.Session(t.Context())
				require.NoError(t, err)
				require.NoError(t, srv.Expire(s.ID()))
				time.Sleep(5 * time.Second)
				require.NoError(t, srv.Delete(node.Path))
				time.Sleep(10 * time.Second)
				synctest.Wait()
				select {
				case err := <-over:
					t.Errorf("Run has ended, though nothing is in its way any more: %v", err)
				default:
					require.Equal(t, 2, terms)
				}
				cancel()
				synctest.Wait()
			})
		})
	}
}

// A name of the greatest length that a server accepts (a sequential one is ten bytes longer than the requested name)
// must not cost the waiters behind it their connections, or their client its other holds.
func TestANeighbourCannotCutConnectionsWithAVeryLongName(t *testing.T) {
	for _, more := range []int{-60, -37, -30} {
		t.Run(fmt.Sprint(more), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := zktest.Run(t, zktest.WithoutListener())
				opt := zklock.WithACL(mayCreate()...)
				p := &peer{srv: srv, lie: honest}
				c, err := zklock.Dial(t.Context(), srv.Addr(), zklock.WithDialer(p.dial), zklock.WithAuth("digest", []byte("we:secret")))
				require.NoError(t, err)
				defer c.Close()
				held, err := c.Mutex("/locks/other", opt).Lock(t.Context())
				require.NoError(t, err)
				h, err := c.Mutex(dir, opt).Lock(t.Context())
				require.NoError(t, err)
				require.NoError(t, h.Unlock(t.Context()))
				name := "-lock-0000000000"
				name = strings.Repeat("x", 0xfffff+more-len(dir)-1-len(name)) + name
				require.NoError(t, srv.Create(dir+"/"+name, nil))
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				before := p.connections()
				time.AfterFunc(20*time.Second, srv.DropConnections)
				_, err = c.Mutex(dir, opt).Lock(ctx)
				require.ErrorContains(t, err, "2nd in line")
				require.Equal(t, before+1, p.connections(), "connections")
				require.NoError(t, held.Err())
				require.NoError(t, held.Unlock(t.Context()))
			})
		})
	}
}
