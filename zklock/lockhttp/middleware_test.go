package lockhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zklock/lockhttp"
	"github.com/zklock/locker/zktest"
)

func TestRequestsOfOneKeyEnterOneByOneAndOthersSideBySide(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		inside := map[string]*atomic.Int32{"a": {}, "b": {}}
		var most sync.Map
		var total atomic.Int32
		work := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			key := r.URL.Query().Get("key")
			if n := inside[key].Add(1); n > 1 {
				most.Store(key, n)
			}
			total.Add(1)
			time.Sleep(time.Second)
			inside[key].Add(-1)
		})
		began := time.Now()
		var all sync.WaitGroup
		for instance := range 2 { // two processes of one service
			h := lockhttp.Middleware(locktest.Dial(t, srv), byKey)(work)
			for i := range 10 {
				all.Go(func() {
					answer := ask(h, post(context.Background(), []string{"a", "b"}[i%2]))
					if answer.StatusCode != http.StatusOK {
						t.Errorf("instance %d, request %d: %s", instance, i, answer.Status)
					}
				})
			}
		}
		all.Wait()
		most.Range(func(key, n any) bool { t.Errorf("%v: %v at once", key, n); return true })
		require.EqualValues(t, 20, total.Load())
		took := time.Since(began)
		require.True(t, took >= 10*time.Second && took < 11*time.Second, "ten of each key, both keys at once: %v", took)
	})
}

func TestABusyLockIsAConflictAndSaysWhenToComeBack(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c, other := locktest.Dial(t, srv), locktest.Dial(t, srv)
		theirs := locktest.Lock(t, other.Mutex(zklock.KeyPath("/locks/approve", "secret"), zklock.WithOwner("somebody")))
		for _, wait := range []time.Duration{0, 2 * time.Second} {
			began := time.Now()
			answer := ask(lockhttp.Middleware(c, byKey, zklock.WithWait(wait))(ok), post(context.Background(), "secret"))
			require.Equal(t, wait, time.Since(began))
			require.Equal(t, http.StatusConflict, answer.StatusCode)
			require.Equal(t, "1", answer.Header.Get("Retry-After"))
			body, err := io.ReadAll(answer.Body)
			require.NoError(t, err)
			require.Equal(t, "busy: another request is being worked on\n", string(body), "and nothing of path, key or holder")
			require.True(t, strings.HasPrefix(answer.Header.Get("Content-Type"), "text/plain"))
		}
		// The request's own deadline is no other answer, for who waits in line.
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		require.Equal(t, http.StatusConflict, ask(lockhttp.Middleware(c, byKey)(ok), post(ctx, "secret")).StatusCode)
		locktest.Unlock(t, theirs)
		synctest.Wait() // for the znode of the one that gave up, which goes in the background
		require.Equal(t, http.StatusNoContent, ask(lockhttp.Middleware(c, byKey, zklock.WithWait(0))(ok), post(context.Background(), "secret")).StatusCode)
	})
}

func TestAnEnsembleThatCannotBeReachedIsUnavailable(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		never := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a handler without a lock") })
		srv.Leader().Down()
		for name, k := range map[string]struct {
			opts  []zklock.LockOption
			limit time.Duration // of the request
			least time.Duration
			most  time.Duration
		}{
			"WithWait":             {[]zklock.LockOption{zklock.WithWait(time.Second)}, time.Hour, time.Second, time.Second},
			"no waiting":           {[]zklock.LockOption{zklock.WithWait(0)}, time.Hour, 5 * time.Second, 5 * time.Second},
			"no limit":             {nil, time.Hour, 5 * time.Second, 5 * time.Second},
			"the request's limit":  {nil, time.Second, time.Second, time.Second},
			"a long time to waste": {[]zklock.LockOption{zklock.WithWait(time.Hour)}, time.Hour, 5 * time.Second, 5 * time.Second},
		} {
			ctx, cancel := context.WithTimeout(context.Background(), k.limit)
			began := time.Now()
			answer := ask(lockhttp.Middleware(c, byKey, k.opts...)(never), post(ctx, "k"))
			cancel()
			took := time.Since(began)
			require.Equal(t, http.StatusServiceUnavailable, answer.StatusCode, name)
			require.Equal(t, "5", answer.Header.Get("Retry-After"), name)
			require.GreaterOrEqual(t, took, k.least, name)
			require.LessOrEqual(t, took, k.most, name)
		}
		srv.Leader().Up()
		require.Equal(t, http.StatusNoContent, ask(lockhttp.Middleware(c, byKey)(ok), post(context.Background(), "k")).StatusCode)
		require.NoError(t, c.Close())
		require.Equal(t, http.StatusServiceUnavailable, ask(lockhttp.Middleware(c, byKey)(never), post(context.Background(), "k")).StatusCode)
	})
}

func TestAShortOutageCostsAWaitingRequestNothing(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c, other := locktest.Dial(t, srv), locktest.Dial(t, srv)
		theirs := locktest.Lock(t, other.Mutex("/locks/approve/k"))
		answer := make(chan *http.Response, 1)
		go func() {
			answer <- ask(lockhttp.Middleware(c, byKey, zklock.WithWait(time.Hour))(ok), post(context.Background(), "k"))
		}()
		for range 10 {
			time.Sleep(3 * time.Second)
			srv.Leader().Down()
			time.Sleep(time.Second) // the holder outlasts it too: its lease has more left at any time
			srv.Leader().Up()
			time.Sleep(3 * time.Second)
		}
		require.Empty(t, answer)
		locktest.Unlock(t, theirs)
		require.Equal(t, http.StatusNoContent, (<-answer).StatusCode)
	})
}

func TestARequestThatNamesNoLock(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		secret := errors.New("/secret/path of somebody")
		for name, k := range map[string]struct {
			path   string
			err    error
			status int
			body   string
		}{
			"the empty key":          {zklock.KeyPath("/locks", ""), nil, 400, "the request names no lock\n"},
			"the empty path":         {"", nil, 400, "the request names no lock\n"},
			"a relative path":        {"locks/a", nil, 400, "the request names no lock\n"},
			"ZooKeeper's own":        {"/zookeeper/quota", nil, 400, "the request names no lock\n"},
			"an error":               {"", secret, 400, "the request names no lock\n"},
			"a refusal":              {"", &lockhttp.Refusal{Status: 404, Text: "no such workflow"}, 404, "no such workflow\n"},
			"a wrapped refusal":      {"/l", fmt.Errorf("%w: %w", &lockhttp.Refusal{Status: 403}, secret), 403, "Forbidden\n"},
			"a refusal that is none": {"/l", &lockhttp.Refusal{Status: 200, Text: "fine"}, 500, "Internal Server Error\n"},
		} {
			answer := ask(lockhttp.Middleware(c, func(*http.Request) (string, error) { return k.path, k.err })(ok),
				post(context.Background(), "x"))
			require.Equal(t, k.status, answer.StatusCode, name)
			body, err := io.ReadAll(answer.Body)
			require.NoError(t, err)
			require.Equal(t, k.body, string(body), name)
			require.Empty(t, answer.Header.Get("Retry-After"), name)
		}
	})
}

func TestALockThatCannotWorkIsTheServersFault(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		fail := func(opts ...zklock.LockOption) *http.Response {
			return ask(lockhttp.Middleware(c, byKey, opts...)(ok), post(context.Background(), "k"))
		}
		require.Equal(t, 500, fail(zklock.WithMaxHold(-1)).StatusCode)
		reader, err := c.RWMutex("/locks/approve/k").RLock(locktest.Soon(t))
		require.NoError(t, err)
		require.Equal(t, 500, fail().StatusCode, "another kind of lock")
		locktest.Unlock(t, reader)
		twice := lockhttp.Middleware(c, byKey)(lockhttp.Middleware(c, byKey)(ok))
		require.Equal(t, 500, ask(twice, post(context.Background(), "k")).StatusCode, "a deadlock")
		twice = lockhttp.Middleware(c, byKey)(lockhttp.Middleware(c, byKey, zklock.WithReentrancy())(ok))
		require.Equal(t, 204, ask(twice, post(context.Background(), "k")).StatusCode)
		require.Equal(t, 500, ask(lockhttp.Middleware(c, func(*http.Request) (string, error) { return "/closed", nil },
			zklock.WithACL(zk.WorldACL(zk.PermRead)...))(ok), post(context.Background(), "k")).StatusCode, "access refused")
	})
}

func TestTheHandlersContext(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		type key struct{}
		ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), key{}, "of the request"), time.Hour)
		defer cancel()
		left := errors.New("the client went away")
		for name, k := range map[string]struct {
			end  func(h *zklock.Hold, leave func())
			want error
		}{
			"the lock is lost":      {func(h *zklock.Hold, _ func()) { require.NoError(t, srv.Delete(h.Node())) }, zklock.ErrNodeDeleted},
			"the client goes away":  {func(_ *zklock.Hold, leave func()) { leave() }, left},
			"it takes too long":     {func(*zklock.Hold, func()) {}, zklock.ErrMaxHold},
			"the ensemble is gone":  {func(*zklock.Hold, func()) { srv.Leader().Down() }, zklock.ErrLeaseOver},
			"the session is closed": {func(*zklock.Hold, func()) { require.NoError(t, srv.Expire(srv.Sessions()[0].ID)) }, zklock.ErrLost},
		} {
			served := false
			request, leave := context.WithCancelCause(ctx)
			h := lockhttp.Middleware(c, byKey, zklock.WithWait(time.Hour), zklock.WithMaxHold(15*time.Second))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				served = true
				hold, held := zklock.HoldFrom(r.Context())
				require.True(t, held, name)
				require.Positive(t, hold.Token(), name)
				require.Equal(t, "of the request", r.Context().Value(key{}), name)
				d, _ := r.Context().Deadline() // WithMaxHold's, which is before the request's
				require.WithinDuration(t, time.Now().Add(15*time.Second), d, 0, name)
				time.Sleep(time.Second)
				require.NoError(t, r.Context().Err())
				k.end(hold, func() { leave(left) })
				<-r.Context().Done()
				require.ErrorIs(t, context.Cause(r.Context()), k.want, name)
				w.WriteHeader(http.StatusTeapot)
			}))
			answer := ask(h, post(request, "k"))
			leave(nil)
			require.True(t, served, name)
			require.Equal(t, http.StatusTeapot, answer.StatusCode, "%s: the handler's answer is not replaced", name)
			srv.Leader().Up()
			_, err := c.Session(locktest.Soon(t))
			require.NoError(t, err)
			if name != "the ensemble is gone" && name != "the session is closed" {
				synctest.Wait()
				require.Empty(t, srv.Children("/locks/approve/k"), name)
			}
		}
	})
}

func TestAPanicGoesOnUnchangedAndReleases(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		for _, what := range []any{http.ErrAbortHandler, "something else"} {
			h := lockhttp.Middleware(c, byKey)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				require.Len(t, c.Status().Holds, 1)
				panic(what)
			}))
			func() {
				defer func() { require.Equal(t, what, recover()) }()
				ask(h, post(context.Background(), "k"))
			}()
			require.Empty(t, srv.Children("/locks/approve/k"))
			require.Empty(t, c.Status().Holds)
		}
	})
}

func TestAClientThatGoesAwayWhileItWaitsLeavesTheLine(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c, other := locktest.Dial(t, srv), locktest.Dial(t, srv)
		theirs := locktest.Lock(t, other.Mutex("/locks/approve/k"))
		ctx, cancel := context.WithCancel(context.Background())
		answer := make(chan *http.Response, 1)
		never := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a handler without a lock") })
		go func() { answer <- ask(lockhttp.Middleware(c, byKey)(never), post(ctx, "k")) }()
		time.Sleep(time.Second)
		require.Len(t, srv.Children("/locks/approve/k"), 2)
		cancel()
		require.Equal(t, http.StatusServiceUnavailable, (<-answer).StatusCode, "should there be somebody to read it: not 200")
		synctest.Wait()
		require.Len(t, srv.Children("/locks/approve/k"), 1)
		require.Empty(t, c.Status().Waits)
		locktest.Unlock(t, theirs)
	})
}
