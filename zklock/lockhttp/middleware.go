package lockhttp

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zklock"
)

// Middleware has requests enter a handler under a Mutex of c's, whose path is made from the request, mostly with
// zklock.KeyPath: requests with different paths go side by side, those with one path one after the other, in the order
// in which they came, in the whole fleet.
//
// Without an option a request waits for as long as its own context lasts: until its client goes away, or until a
// deadline that the server gave it. (net/http notices that a client has gone away once the request's body, if there is
// one, has been read.) Most services want WithWait, and WithMaxHold for a handler that may hang. These are answered
// without the handler:
//
//	400   path returned an error, or a path that can't be a lock's, as KeyPath does for the empty key
//	409   somebody else has the lock, and WithWait's time, or the request's deadline, is over; with Retry-After
//	503   the ensemble can't be reached, or the Client is closed; with Retry-After
//	500   the lock can't work: a bad option, a path that is another kind of lock, access refused
//
// 503 comes when WithWait's time is over, and in any case when for half the session timeout no server was connected
// (5 s by default). An error of path that is a Refusal, or wraps one, chooses its own answer. The answers' texts name
// no path, key or holder; hooks and logger of the Client tell why.
//
// In the handler, the request's context ends when the lock is lost, or with the request, whichever is first;
// context.Cause says which. zklock.HoldFrom finds the hold in it, for the token, SafeUntil or Multi. The ResponseWriter
// is the server's own: flushing, hijacking and http.ResponseController work. The middleware can't take an answer back: a
// handler whose context ended before its work was done has to say so, and what it has written before stays written.
//
// The lock is released after the handler has returned, or panicked, and before the end of a short answer is sent: who
// has read the answer finds the lock free. When the ensemble can't be reached, that may take up to the session timeout;
// a lock that can't be released goes with the session. A panic goes on, unchanged.
//
// The returned function may be called, and what it returns may serve, concurrently.
func Middleware(c *zklock.Client, path func(*http.Request) (string, error), opts ...zklock.LockOption) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			p, err := path(r)
			if err != nil {
				refusePath(w, err)
				return
			}
			ctx, cancel := context.WithCancelCause(r.Context())
			defer cancel(nil)
			reach := newReach(c, cancel)
			served := false
			err = c.Mutex(p, opts...).Do(ctx, func(work context.Context) error {
				if !reach.stop() {
					return errUnreachable
				}
				served = true
				next.ServeHTTP(w, r.WithContext(work))
				return nil
			})
			reach.stop()
			if !served {
				refuse(w, err)
			} // else the answer is the handler's; a loss, or a release that failed, is told by the Client's hooks and logger
		})
	}
}

// errUnreachable is why a request stops waiting for a lock when no server is connected.
var errUnreachable = errors.New("lockhttp: no server reachable")

// looks is how many times in a row, an eighth of the session timeout apart, no server is seen to be connected before a
// request gives up waiting.
const looks = 4

// reach watches over a request that waits, so that it does not wait for an ensemble that is not there. It costs a timer,
// and no goroutine while nothing fires.
type reach struct {
	c      *zklock.Client
	cancel context.CancelCauseFunc
	every  time.Duration
	timer  *time.Timer
	missed int         // the timer's
	ended  atomic.Bool // set once: the wait is over, or has been given up
}

func newReach(c *zklock.Client, cancel context.CancelCauseFunc) *reach {
	o := &reach{c: c, cancel: cancel, every: c.SessionStatus().Timeout / (2 * looks)}
	ready := make(chan struct{}) // for the case that the timer fires before it is assigned
	o.timer = time.AfterFunc(o.every, func() { <-ready; o.look() })
	close(ready)
	return o
}

// look is the timer's.
func (o *reach) look() {
	if o.c.SessionStatus().State == session.Connected {
		o.missed = 0
	} else if o.missed++; o.missed >= looks {
		if o.ended.CompareAndSwap(false, true) {
			o.cancel(errUnreachable)
		}
		return
	}
	if !o.ended.Load() {
		o.timer.Reset(o.every)
	}
}

// stop ends the watch; false: the wait was given up before.
func (o *reach) stop() bool {
	o.timer.Stop()
	return o.ended.CompareAndSwap(false, true)
}

// Refusal is an error for a path function: it chooses the answer to a request that has no lock, 404 for a key that does
// not exist, say. Any other error is answered with 400.
type Refusal struct {
	Status int    // 400 to 599; anything else is answered with 500
	Text   string // what the client reads; "" for the status's name
}

// Error returns the text.
func (e *Refusal) Error() string { return e.text() }

func (e *Refusal) text() string {
	if e.Text != "" {
		return e.Text
	}
	return http.StatusText(e.Status)
}

func refusePath(w http.ResponseWriter, err error) {
	var own *Refusal
	switch {
	case !errors.As(err, &own):
		http.Error(w, "the request names no lock", http.StatusBadRequest)
	case own.Status < 400 || own.Status > 599:
		http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
	default:
		http.Error(w, own.text(), own.Status)
	}
}

// refuse answers a request that did not get its lock. One whose client has gone is answered as well, to nobody: its
// context may have been cancelled by somebody else, and then no answer would be "200 OK".
func refuse(w http.ResponseWriter, err error) {
	const retryBusy, retryUnreachable = "1", "5" // seconds
	var line recipe.Waiting
	switch {
	case errors.Is(err, zklock.ErrPath):
		http.Error(w, "the request names no lock", http.StatusBadRequest)
	case errors.Is(err, errUnreachable), errors.Is(err, zklock.ErrClosed), errors.Is(err, context.Canceled):
		w.Header().Set("Retry-After", retryUnreachable)
		http.Error(w, "the lock service can't be reached", http.StatusServiceUnavailable)
	case errors.Is(err, zklock.ErrBusy), errors.Is(err, context.DeadlineExceeded) && errors.As(err, &line):
		w.Header().Set("Retry-After", retryBusy)
		http.Error(w, "busy: another request is being worked on", http.StatusConflict)
	case errors.Is(err, context.DeadlineExceeded):
		w.Header().Set("Retry-After", retryUnreachable)
		http.Error(w, "the lock service can't be reached", http.StatusServiceUnavailable)
	default:
		http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
	}
}
