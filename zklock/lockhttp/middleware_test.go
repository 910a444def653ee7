package lockhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
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
			h := lockhttp.Middleware(wait, byKey(locktest.Dial(t, srv)))(work)
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
		require.True(t, took >= 10*time.Second && took < 11*time.Second,
			"ten of each key, both keys at once: %v", took)
	})
}

func TestABusyLockIsAConflictAndSaysWhenToComeBack(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c, other := locktest.Dial(t, srv), locktest.Dial(t, srv)
		theirs := locktest.Lock(t,
			other.Mutex(zklock.KeyPath("/locks/approve", "secret"), zklock.WithOwner("somebody")))
		for _, opts := range [][]zklock.LockOption{{zklock.WithMaxWait(0)}, nil} {
			answer := ask(lockhttp.Middleware(2*time.Second, byKey(c, opts...))(ok),
				post(context.Background(), "secret"))
			require.Equal(t, http.StatusConflict, answer.StatusCode)
			require.Equal(t, "1", answer.Header.Get("Retry-After"))
			body, err := io.ReadAll(answer.Body)
			require.NoError(t, err)
			require.Equal(t, "busy: another request is being worked on\n", string(body),
				"and nothing of path, key or holder")
			require.True(t, strings.HasPrefix(answer.Header.Get("Content-Type"), "text/plain"))
		}
		// The request's own deadline is no other answer, for who waits in line.
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		require.Equal(t, http.StatusConflict,
			ask(locked(c, ok), post(ctx, "secret")).StatusCode)
		locktest.Unlock(t, theirs)
		synctest.Wait() // for the znode of the one that gave up, which goes in the background
		answer := ask(locked(c, ok, zklock.WithMaxWait(0)), post(context.Background(), "secret"))
		require.Equal(t, http.StatusNoContent, answer.StatusCode)
	})
}

func TestAnEnsembleThatCannotBeReachedIsUnavailable(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		srv.Leader().Down()
		maxWait := func(d time.Duration) []zklock.LockOption {
			return []zklock.LockOption{zklock.WithMaxWait(d)}
		}
		for name, k := range map[string]struct {
			wait  time.Duration
			opts  []zklock.LockOption
			limit time.Duration // of the request
		}{
			"the wait":            {time.Second, nil, time.Hour},
			"no waiting in line":  {time.Second, maxWait(0), time.Hour},
			"the lock's wait":     {time.Hour, maxWait(time.Second), time.Hour},
			"the request's limit": {time.Hour, nil, time.Second},
		} {
			ctx, cancel := context.WithTimeout(context.Background(), k.limit)
			began := time.Now()
			h := lockhttp.Middleware(k.wait, byKey(c, k.opts...))(never(t))
			answer := ask(h, post(ctx, "k"))
			cancel()
			require.Equal(t, http.StatusServiceUnavailable, answer.StatusCode, name)
			require.Equal(t, "5", answer.Header.Get("Retry-After"), name)
			require.Equal(t, time.Second, time.Since(began), name)
		}
		srv.Leader().Up()
		answer := ask(locked(c, ok), post(context.Background(), "k"))
		require.Equal(t, http.StatusNoContent, answer.StatusCode)
		require.NoError(t, c.Close())
		answer = ask(locked(c, never(t)), post(context.Background(), "k"))
		require.Equal(t, http.StatusServiceUnavailable, answer.StatusCode)
	})
}

func TestARequestThatNamesNoLock(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		secret := errors.New("/secret/path of somebody")
		missing := &lockhttp.Refusal{Status: 404, Text: "no such workflow"}
		forbidden := fmt.Errorf("%w: %w", &lockhttp.Refusal{Status: 403}, secret)
		fine := &lockhttp.Refusal{Status: 200, Text: "fine"}
		const unnamed = "the request names no lock\n"
		for name, k := range map[string]struct {
			path   string
			err    error
			status int
			body   string
		}{
			"the empty key":          {zklock.KeyPath("/locks", ""), nil, 400, unnamed},
			"the empty path":         {"", nil, 400, unnamed},
			"a relative path":        {"locks/a", nil, 400, unnamed},
			"ZooKeeper's own":        {"/zookeeper/quota", nil, 400, unnamed},
			"an error":               {"", secret, 400, unnamed},
			"a refusal":              {"", missing, 404, "no such workflow\n"},
			"a wrapped refusal":      {"/l", forbidden, 403, "Forbidden\n"},
			"a refusal that is none": {"/l", fine, 500, "Internal Server Error\n"},
		} {
			lock := func(*http.Request) (lockhttp.Do, error) { return c.Mutex(k.path).Do, k.err }
			answer := ask(lockhttp.Middleware(wait, lock)(ok), post(context.Background(), "x"))
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
			return ask(locked(c, ok, opts...), post(context.Background(), "k"))
		}
		require.Equal(t, 500, fail(zklock.WithMaxHold(-1)).StatusCode)
		_, reader, err := c.RWMutex("/locks/approve/k").RLock(locktest.Soon(t))
		require.NoError(t, err)
		require.Equal(t, 500, fail().StatusCode, "another kind of lock")
		locktest.Unlock(t, reader)
		twice := locked(c, locked(c, ok))
		require.Equal(t, 500, ask(twice, post(context.Background(), "k")).StatusCode, "a deadlock")
		twice = locked(c, locked(c, ok, zklock.WithReentrancy()))
		require.Equal(t, 204, ask(twice, post(context.Background(), "k")).StatusCode)
		closed := func(*http.Request) (lockhttp.Do, error) {
			return c.Mutex("/closed", zklock.WithACL(zk.WorldACL(zk.PermRead)...)).Do, nil
		}
		answer := ask(lockhttp.Middleware(wait, closed)(ok), post(context.Background(), "k"))
		require.Equal(t, 500, answer.StatusCode, "access refused")
	})
}

func TestTheHandlersContext(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		type key struct{}
		ctx := context.WithValue(context.Background(), key{}, "of the request")
		ctx, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		left := errors.New("the client went away")
		lose := func(h *zklock.Hold, _ func()) { require.NoError(t, srv.Delete(h.Node())) }
		leaves := func(_ *zklock.Hold, leave func()) { leave() }
		nothing := func(*zklock.Hold, func()) {}
		down := func(*zklock.Hold, func()) { srv.Leader().Down() }
		expire := func(*zklock.Hold, func()) {
			require.NoError(t, srv.Expire(srv.Sessions()[0].ID))
		}
		for name, k := range map[string]struct {
			end  func(h *zklock.Hold, leave func())
			want error
		}{
			"the lock is lost":      {lose, zklock.ErrNodeDeleted},
			"the client goes away":  {leaves, left},
			"it takes too long":     {nothing, zklock.ErrMaxHold},
			"the ensemble is gone":  {down, zklock.ErrLeaseExpired},
			"the session is closed": {expire, zklock.ErrLost},
		} {
			served := false
			request, leave := context.WithCancelCause(ctx)
			handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				served = true
				hold, held := zklock.HoldFrom(r.Context(), "/locks/approve/k")
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
			})
			h := locked(c, handler, zklock.WithMaxHold(15*time.Second))
			answer := ask(h, post(request, "k"))
			leave(nil)
			require.True(t, served, name)
			require.Equal(t, http.StatusTeapot, answer.StatusCode,
				"%s: the handler's answer is not replaced", name)
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
			h := locked(c, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
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
		go func() { answer <- ask(locked(c, never(t)), post(ctx, "k")) }()
		time.Sleep(time.Second)
		require.Len(t, srv.Children("/locks/approve/k"), 2)
		cancel()
		require.Equal(t, http.StatusServiceUnavailable, (<-answer).StatusCode,
			"should there be somebody to read it: not 200")
		synctest.Wait()
		require.Len(t, srv.Children("/locks/approve/k"), 1)
		require.Empty(t, c.Status().Waits)
		locktest.Unlock(t, theirs)
	})
}

func TestTheRequestChoosesItsLockOrNone(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		holds := func(kind zklock.LockKind) (n int) {
			for _, h := range c.Status().Holds {
				if h.Kind == kind {
					n++
				}
			}
			return n
		}
		var here, most atomic.Int32
		h := lockhttp.Middleware(wait, func(r *http.Request) (lockhttp.Do, error) {
			pages := c.RWMutex("/locks/page")
			switch r.Method {
			case http.MethodOptions:
				return nil, nil
			case http.MethodGet, http.MethodHead:
				return pages.RDo, nil
			case http.MethodPost:
				return func(ctx context.Context, work func(context.Context) error) error {
					return c.Semaphore("/locks/exports", 3).Do(ctx, 2, work)
				}, nil
			}
			return pages.Do, nil
		})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n := here.Add(1)
			defer here.Add(-1)
			most.Store(max(most.Load(), n))
			path := "/locks/page"
			if r.Method == http.MethodPost {
				path = "/locks/exports"
			}
			_, held := zklock.HoldFrom(r.Context(), path)
			require.Equal(t, r.Method != http.MethodOptions, held)
			require.Equal(t, r.Method == http.MethodPut, holds("write") == 1)
			require.Equal(t, r.Method == http.MethodPost, holds("semaphore") == 1)
			time.Sleep(time.Second)
		}))
		for _, k := range []struct {
			method string
			most   int32
		}{{http.MethodOptions, 5}, {http.MethodGet, 5}, {http.MethodPut, 1}, {http.MethodPost, 1}} {
			most.Store(0)
			var all sync.WaitGroup
			for range 5 {
				all.Go(func() {
					answer := ask(h, httptest.NewRequest(k.method, "/", nil))
					if answer.StatusCode != http.StatusOK {
						t.Errorf("%s: %s", k.method, answer.Status)
					}
				})
			}
			all.Wait()
			require.Equal(t, k.most, most.Load(), k.method)
		}
	})
}

func TestALockThatReturnsWithoutTheHandlerIsTheServersFault(t *testing.T) {
	for _, err := range []error{nil, errors.New("other")} {
		h := lockhttp.Middleware(wait, func(*http.Request) (lockhttp.Do, error) {
			return func(context.Context, func(context.Context) error) error { return err }, nil
		})(ok)
		require.Equal(t, http.StatusInternalServerError,
			ask(h, post(context.Background(), "k")).StatusCode)
	}
}

func TestALockThatCallsTwiceServesOnce(t *testing.T) {
	served := 0
	h := lockhttp.Middleware(wait, func(*http.Request) (lockhttp.Do, error) {
		return func(ctx context.Context, work func(context.Context) error) error {
			require.NoError(t, work(ctx))
			return work(ctx)
		}, nil
	})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
	require.Equal(t, http.StatusOK, ask(h, post(context.Background(), "k")).StatusCode)
	require.Equal(t, 1, served)
}

func TestALockThatComesAfterTheWaitIsBusy(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, _ *zktest.Server) {
		h := lockhttp.Middleware(wait, func(*http.Request) (lockhttp.Do, error) {
			return func(ctx context.Context, work func(context.Context) error) error {
				<-ctx.Done()
				return work(ctx)
			}, nil
		})(ok)
		require.Equal(t, http.StatusConflict, ask(h, post(context.Background(), "k")).StatusCode)
	})
}
