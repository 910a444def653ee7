package lockhttp_test

import (
	"context"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zklock/lockhttp"
	"github.com/zklock/locker/zktest"
)

// askAborting is ask for a handler that may abort; then it returns 0.
func askAborting(t *testing.T, h http.Handler, r *http.Request) (status int) {
	defer func() {
		if p := recover(); p != nil && p != http.ErrAbortHandler {
			t.Error(p)
		}
	}()
	return ask(h, r).StatusCode
}

// alone is a handler that demands to be the only one of its key, and a token above the last one. Now and then it aborts.
func alone(t *testing.T, inside map[string]*atomic.Int32, tokens *sync.Map) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.URL.Query().Get("key")
		if n := inside[key].Add(1); n > 1 {
			t.Errorf("%d handlers of %s", n, key)
		}
		hold, _ := zklock.HoldFrom(r.Context())
		if last, ok := tokens.Swap(key, hold.Token()); ok && last.(zklock.Token) >= hold.Token() {
			t.Errorf("token %d after %d", hold.Token(), last)
		}
		timer := time.NewTimer(rand.N(300 * time.Millisecond))
		defer timer.Stop()
		defer inside[key].Add(-1)
		select {
		case <-timer.C:
			w.WriteHeader(http.StatusNoContent)
		case <-r.Context().Done(): // lost, or nobody waits for the answer
			w.WriteHeader(http.StatusInternalServerError)
		}
		if rand.N(20) == 0 {
			panic(http.ErrAbortHandler)
		}
	})
}

// Four instances, a network that breaks, clients that leave, handlers that panic: never two handlers of one key that
// both still may work, every answer one of the few that are promised, and nothing left in the end.
func TestMiddlewareUnderFire(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		inside := map[string]*atomic.Int32{"a": {}, "b": {}, "c": {}}
		var tokens sync.Map // key → the latest
		work := alone(t, inside, &tokens)
		var all sync.WaitGroup
		stop := make(chan struct{})
		var answers [600]atomic.Int32
		var clients []*zklock.Client
		for range 4 {
			c := locktest.Dial(t, srv)
			clients = append(clients, c)
			h := lockhttp.Middleware(c, byKey, zklock.WithWait(2*time.Second), zklock.WithMaxHold(5*time.Second))(work)
			for range 6 {
				all.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
						}
						ctx, cancel := context.WithTimeout(context.Background(), rand.N(10*time.Second))
						request := post(ctx, []string{"a", "b", "c"}[rand.N(3)])
						if status := askAborting(t, h, request); status != 0 {
							answers[status].Add(1)
						}
						cancel()
					}
				})
			}
		}
		promised := []int{204, 409, 500, 503} // 500: the handler's own
		for round := 0; round < 12 || round < 100 && slices.ContainsFunc(promised, func(s int) bool { return answers[s].Load() == 0 }); round++ {
			// A new leader gives every session its whole timeout again: if none lived for longer, the znodes of sessions that
			// their clients have lost would never go, and nobody would get a lock any more.
			time.Sleep(rand.N(30 * time.Second))
			srv.DropConnections()
			time.Sleep(rand.N(5 * time.Second))
			srv.Leader().Down()
			time.Sleep(rand.N(15 * time.Second))
			srv.Leader().Up()
		}
		close(stop)
		all.Wait()
		for status := range answers {
			if n := answers[status].Load(); slices.Contains(promised, status) {
				require.Positive(t, n, "no answer %d in all that time", status)
			} else {
				require.Zero(t, n, "answer %d", status)
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, c := range clients {
			require.Empty(t, c.Status().Holds)
			require.Empty(t, c.Status().Waits)
		}
		for key := range inside {
			require.Empty(t, srv.Children("/locks/approve/"+key))
		}
	})
}
