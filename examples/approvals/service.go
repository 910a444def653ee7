package main

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zklock/lockhttp"
)

const (
	lockWait    = 2 * time.Second  // a request waits this long for its key's lock, then the answer is: busy
	lockMaxHold = 10 * time.Second // and holds it for this long at most
	maxKey      = 200              // bytes; longer keys are refused
)

// service is the approvals service of an instance.
type service struct {
	name  string
	store *store
	gate  *gate
	pause time.Duration

	lost  atomic.Int64 // updates that ended with the hold, before their write
	stale func(staleWrite)
}

// staleWrite is a write that the row refused.
type staleWrite struct {
	Key   string
	Token int64
	N     int64 // the number that it would have written; 0 for a claim
}

// answer is the body of an accepted update.
type answer struct {
	N       int64 // the update is the key's nth
	Already bool  // it had been accepted before this request
}

// handler returns the service's routes. With c, a key's updates run one at a time in the whole fleet; without, all at
// once.
func (s *service) handler(c *zklock.Client, root string) http.Handler {
	approve := http.Handler(http.HandlerFunc(s.approve))
	if c != nil {
		lock := lockhttp.Middleware(c,
			func(r *http.Request) (string, error) { return lockPath(root, r.PathValue("key")), nil },
			zklock.WithWait(lockWait), zklock.WithMaxHold(lockMaxHold), zklock.WithOwner(s.name), zklock.WithContainer())
		approve = lock(approve)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /approvals/{key}", check(approve))
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	return mux
}

func lockPath(root, key string) string { return zklock.KeyPath(root, "workflow-approve-"+key) }

// check refuses an invalid request before it waits for a lock.
func check(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case len(r.PathValue("key")) > maxKey:
			http.Error(w, "key: longer than "+strconv.Itoa(maxKey)+" bytes", http.StatusBadRequest)
		case r.Header.Get(idHeader) == "":
			http.Error(w, idHeader+": is missing", http.StatusBadRequest)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// idHeader carries the client's name for an update. A client without an answer does not know whether its update was
// accepted: the instance may have been killed before its commit, or after it. It repeats the request, under the same
// name, and the instance that answers looks the name up under the lock.
const idHeader = "Idempotency-Key"

// approve makes one update. Its context ends with the lock.
func (s *service) approve(w http.ResponseWriter, r *http.Request) {
	u := update{ID: r.Header.Get(idHeader), Key: r.PathValue("key"), Approver: r.URL.Query().Get("approver"), Instance: s.name}
	late := lateWrite{Key: u.Key}
	if hold, ok := zklock.HoldFrom(r.Context()); ok {
		u.Token = int64(hold.Token())
		late.Token, late.Node = u.Token, hold.Node()
	}
	a, err := s.update(r.Context(), u, late)
	switch {
	case err == nil:
		w.Header().Set("Content-Type", "application/json")
		// A client that has disconnected repeats the request.
		_ = json.NewEncoder(w).Encode(a)
	case errors.Is(err, errStale), errors.Is(err, zklock.ErrLost):
		w.Header().Set("Retry-After", "1")
		http.Error(w, "the lock was lost; nothing was written", http.StatusServiceUnavailable)
	default:
		// The database failed, perhaps in its commit: the outcome is unknown.
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// update reads, takes a moment, and writes: two of these at one time for one key would lose an update.
func (s *service) update(ctx context.Context, u update, late lateWrite) (answer, error) {
	s.gate.begin()
	defer s.gate.end()
	n, already, err := s.store.claim(ctx, u)
	s.gate.done()
	if errors.Is(err, errStale) {
		s.stale(staleWrite{Key: u.Key, Token: u.Token})
	}
	if err == nil && !already {
		err = pause(ctx, s.pause/2+rand.N(s.pause+1)) // a policy is checked, a mail is sent
	}
	if err != nil {
		if cause := context.Cause(ctx); errors.Is(cause, zklock.ErrLost) {
			s.lost.Add(1)
			err = cause
		}
		return answer{}, err
	}
	if already {
		return answer{N: n, Already: true}, nil
	}

	// That was the last check of the lock. A process may be stopped right here, for longer than its session lasts, and
	// then write. No context helps against that; the token does. A write that has begun is not cancelled when the
	// context ends: that could only make its outcome unknown.
	n++
	late.N = n
	s.gate.write(late)
	err = s.store.apply(context.WithoutCancel(ctx), u, n)
	s.gate.done()
	if errors.Is(err, errStale) {
		s.stale(staleWrite{Key: u.Key, Token: u.Token, N: n})
	}
	return answer{N: n}, err
}

// pause waits for d, or less when ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
