package lockhttp

import (
	"context"
	"errors"
	"io"
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
// A request waits for DefaultWait at most; WithWait among opts says otherwise. It leaves the line as soon as its own
// context ends: with its client, or with a deadline that the server gave it. net/http looks out for the end of an
// HTTP/1 connection only when the request's body has been read, so a body of known length of up to 64 KB is read into
// memory before the wait, and the handler reads it from there: the lock is not held while a client sends it. A client that
// goes away while a longer body, one of unknown length, or one that waits for "100 Continue" is unread is not noticed:
// its request waits to the end.
//
// Most services want WithWait, WithMaxHold for a handler that may hang, and, where keys come from outside, WithContainer:
// without it each key leaves its lock's directory in the ensemble's memory for ever (zklock prune removes them). These are
// answered without the handler:
//
//	400   path returned an error, or a path that can't be a lock's, as KeyPath does for the empty key; or the body could
//	      not be read
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
// Not covered by the lock: what goes on after the handler has returned, above all a connection that it has hijacked, and
// the end of a long answer that the server sends then. Nor does the end of the lock interrupt a handler that reads a long
// body from a slow client, or writes to one: those calls know no context. Deadlines of http.ResponseController, or
// ReadTimeout and WriteTimeout of the http.Server, bound them. A read deadline goes when the body has been read to its end,
// as it does without the lock; one that passes before, or that is set later, ends the request's context.
//
// The lock is released after the handler has returned, or panicked, and before the end of a short answer is sent: who
// has read the answer finds the lock free; unless no server is connected, or none answers for a tenth of the session
// timeout: then the answer is sent, and the lock is released in the background, or goes with the session. Whatever becomes of
// the release, the answer is the handler's. A panic goes on, unchanged.
//
// The returned function may be called, and what it returns may serve, concurrently.
func Middleware(c *zklock.Client, path func(*http.Request) (string, error), opts ...zklock.LockOption) func(http.Handler) http.Handler {
	opts = append([]zklock.LockOption{zklock.WithWait(DefaultWait)}, opts...) // the last one wins
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			p, err := path(r)
			if err != nil {
				refusePath(w, err)
				return
			}
			body, err := readAhead(w, r)
			if err != nil {
				http.Error(w, "the request's body can't be read", http.StatusBadRequest)
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
				serve(next, w, r, work, body)
				return nil
			})
			reach.stop()
			if !served {
				refuse(w, err)
			} // else the answer is the handler's; a loss, or a release that failed, is told by the Client's hooks and logger
		})
	}
}

// serve calls next with a copy of r. What the handler hangs on the copy reaches r: net/http removes the temporary files of a
// form, and middleware around this one reads the pattern and the path's values.
func serve(next http.Handler, w http.ResponseWriter, r *http.Request, work context.Context, body io.ReadCloser) {
	inner := r.WithContext(work)
	inner.Body = body
	defer func() {
		if b, ok := body.(*readBody); ok {
			b.leave()
		}
		outer := r.Body
		*r = *inner.WithContext(r.Context())
		r.Body = outer
	}()
	next.ServeHTTP(w, inner)
}

// DefaultWait is how long a request waits for its lock when WithWait does not say otherwise. A client that has gone away is
// not always noticed, so there is a bound.
const DefaultWait = 10 * time.Second

// errUnreachable is why a request stops waiting for a lock when no server is connected.
var errUnreachable = errors.New("lockhttp: no server reachable")

// looks is how many times in a row, an eighth of the session timeout apart, no server is seen to be connected before a
// request gives up waiting.
const looks = 4

// reach ends the wait of a request when no server is connected. It costs a timer, and no goroutine until that fires.
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

// look is the function of the timer.
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

// refuse answers a request that did not get its lock. It answers one whose client seems to be gone, too: middleware may have
// cancelled the context, and a request without an answer would be answered with "200 OK".
func refuse(w http.ResponseWriter, err error) {
	const retryBusy, retryUnreachable = "1", "5" // seconds
	var line recipe.LineError
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
