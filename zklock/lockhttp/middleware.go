package lockhttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zklock/locker/internal/queue"
	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/zklock"
)

// Do runs work under a lock: the method Do of a zklock.Mutex, RWMutex or MultiLock, or RWMutex.RDo,
// for readers, or a function that calls such a method, as for the permits of a zklock.Semaphore.
type Do func(ctx context.Context, work func(ctx context.Context) error) error

// Middleware runs a handler under the lock that the function lock chooses for each request, mostly
// a Mutex whose path zklock.KeyPath makes from the request. In the whole fleet, requests with one
// path go one after the other, in order of arrival; those with different paths go side by side. A
// request for which lock returns nil needs no lock.
//
// A request waits at most for wait, which must be positive, or for its lock's WithMaxWait, if that
// is less. With WithMaxWait(0) it does not wait in line. It leaves the line as soon as its own
// context ends: with its client, or with a deadline that the server gave it. net/http looks out for
// the end of an HTTP/1 connection only when the request's body has been read. So a body of known
// length, up to 64 KB, is read into memory before the wait, and the handler reads it from there.
// The lock is not held while a client sends it. A longer body, one of unknown length, or one that
// waits for "100 Continue" stays unread during the wait. If its client goes away, nobody notices,
// and the request waits to the end.
//
// WriteTimeout of the http.Server counts from the end of the request's header. It must exceed the
// sum of wait, the handler's time (WithMaxHold bounds it) and the release's (at most a tenth of the
// session timeout). Otherwise the work may be done although the client hears nothing and tries
// again. If WriteTimeout does not exceed wait alone, all requests are refused.
//
// When Shutdown of the http.Server is called, which the middleware finds by http.ServerContextKey,
// the requests that wait are turned away with 503, and those that hold their locks finish.
//
// Most services want WithMaxHold, for a handler that may hang, and, where keys come from outside,
// WithContainer: without it each key leaves its lock's directory in the ensemble's memory for ever
// (zklock prune removes them).
//
// These requests are answered without the handler:
//
//	400   the function returned an error, or a lock whose path can't be one, such as KeyPath's of the empty key; or the
//	      body could not be read
//	409   somebody else has the lock, and the wait, or the request's deadline, is over; with Retry-After
//	503   the ensemble could not be reached in all that time, or, for a request that does not wait, within 5 s; the
//	      Client is closed; or the server has given up the request; with Retry-After
//	500   the lock can't work: a bad option, a path that is another kind of lock, access refused; or the server's
//	      WriteTimeout is no longer than wait: its ErrorLog has a line
//
// An error of lock that is a Refusal, or wraps one, chooses its own answer. The answers' texts name
// no path, key or holder; hooks and logger of the Client tell why.
//
// In the handler, the request's context ends when the lock is lost, or with the request, whichever
// is first; context.Cause says which. zklock.HoldFrom finds the hold in it, for the token,
// SafeUntil or Multi. The ResponseWriter is the server's own: flushing, hijacking and
// http.ResponseController work. The middleware can't take an answer back: a handler whose context
// ended before its work was done has to say so, and what it has written before stays written.
//
// Not covered by the lock: what goes on after the handler has returned, above all a connection that
// it has hijacked, and the end of a long answer that the server sends then. Nor does the end of the
// lock interrupt a handler that reads a long body from a slow client, or writes to one: those calls
// know no context. Deadlines of http.ResponseController, or ReadTimeout and WriteTimeout of the
// http.Server, bound them. A read deadline goes when the body has been read to its end, as it does
// without the lock; one that passes before, or that is set later, ends the request's context, and
// that of later requests on its connection. ReadTimeout begins anew after the wait for a body that
// is still to be read.
//
// The lock is released after the handler has returned, or panicked, and before the end of a short
// answer is sent. So a client that has read such an answer finds the lock free. The exception is
// when no server is connected, or none answers for a tenth of the session timeout. Then the answer
// is sent, and the lock is released in the background, or ends with the session. Whatever becomes
// of the release, the answer is the handler's. A panic goes on, unchanged.
//
// The returned function may be called, and what it returns may serve, concurrently. Middleware
// panics if wait is not positive.
func Middleware(wait time.Duration, lock func(*http.Request) (Do, error)) func(http.Handler) http.Handler {
	if wait <= 0 {
		panic(fmt.Sprintf("lockhttp: wait %v: is not positive", wait))
	}
	var servers servers
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			do, err := lock(r)
			if err != nil {
				refuseUnnamed(w, err)
				return
			}
			if do == nil {
				next.ServeHTTP(w, r)
				return
			}
			server, _ := r.Context().Value(http.ServerContextKey).(*http.Server)
			if !fits(wait, server) {
				http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
				return
			}
			body, err := readAhead(w, r)
			if err != nil {
				http.Error(w, "the request's body can't be read", http.StatusBadRequest)
				return
			}
			ctx, cancel := context.WithCancelCause(r.Context())
			defer cancel(nil)
			var over atomic.Bool // the wait: the lock is ours, or it was given up
			giveUp := func(why error) func() {
				return func() {
					if over.CompareAndSwap(false, true) {
						cancel(why)
					}
				}
			}
			defer time.AfterFunc(wait, giveUp(errWaited)).Stop()
			defer context.AfterFunc(servers.running(server), giveUp(http.ErrServerClosed))()
			served := false
			err = do(ctx, func(work context.Context) error {
				if served { // by a do that repeats its work: a request has one answer
					return errors.New("lockhttp: the request was served before")
				}
				if !over.CompareAndSwap(false, true) { // the lock came too late
					<-ctx.Done()
					return fmt.Errorf("%w: %w", zklock.ErrBusy, context.Cause(ctx))
				}
				served = true
				allowReading(w, r, body, server)
				serve(next, w, r, work, body)
				return nil
			})
			if !served {
				if why := context.Cause(ctx); why != nil && errors.Is(err, ctx.Err()) {
					err = fmt.Errorf("%w: %w", err, why)
				}
				refuse(w, r, err)
			} // else the answer is the handler's; a loss, or a release that failed, is told by the Client's hooks and logger
		})
	}
}

// fits reports whether a server, which may be nil, leaves time for an answer after the wait. If
// not, it logs so, where the server does.
func fits(wait time.Duration, server *http.Server) bool {
	if server == nil || server.WriteTimeout <= 0 || wait < server.WriteTimeout {
		return true
	}
	tell := log.Printf
	if server.ErrorLog != nil {
		tell = server.ErrorLog.Printf
	}
	tell("lockhttp: a wait of %v leaves no time for an answer: WriteTimeout is %v", wait, server.WriteTimeout)
	return false
}

// allowReading gives the handler the server's ReadTimeout for a body that was not read ahead: the
// wait has used up the one that began with the request.
func allowReading(w http.ResponseWriter, r *http.Request, body io.ReadCloser, server *http.Server) {
	_, ahead := body.(*readBody)
	if server == nil || server.ReadTimeout <= 0 || r.ProtoMajor != 1 || ahead || body == nil || body == http.NoBody {
		return
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(server.ReadTimeout)) // a writer without deadlines has none that has passed
}

// servers has, for each http.Server whose requests have come, a context that ends when the server
// is shut down. Shutdown calls no function that is registered later: requests that are the first
// ones of all, and come beside it, wait for wait.
type servers struct{ contexts sync.Map }

// running returns the context of a server, which may be nil.
func (s *servers) running(server *http.Server) context.Context {
	if server == nil {
		return context.Background()
	}
	if ctx, ok := s.contexts.Load(server); ok {
		return ctx.(context.Context)
	}
	ctx, shutDown := context.WithCancel(context.Background())
	if ctx, ok := s.contexts.LoadOrStore(server, ctx); ok {
		shutDown()
		return ctx.(context.Context)
	}
	server.RegisterOnShutdown(shutDown)
	return ctx
}

// errWaited is why a request stops waiting for its lock.
var errWaited = fmt.Errorf("lockhttp: the wait is over: %w", context.DeadlineExceeded)

// serve calls next with a copy of r. What the handler hangs on the copy reaches r: net/http removes
// the temporary files of a form, and middleware around this one reads the pattern and the path's
// values.
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

// Refusal is an error for the function that chooses a lock: it chooses the answer to a request that
// has no lock, 404 for a key that does not exist, say. Any other error is answered with 400.
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

func refuseUnnamed(w http.ResponseWriter, err error) {
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

// refuse answers a request that did not get its lock. It answers one whose client seems to be gone,
// too: middleware may have cancelled the context, and a request without an answer would be answered
// with "200 OK".
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	const (
		soon, later = "1", "5" // seconds
		givenUp     = "the server has given up the request"
	)
	var line queue.LineError
	switch {
	case errors.Is(err, zklock.ErrPath):
		http.Error(w, "the request names no lock", http.StatusBadRequest)
	case errors.Is(err, http.ErrServerClosed):
		w.Header().Set("Retry-After", soon)
		http.Error(w, givenUp, http.StatusServiceUnavailable)
	case errors.Is(err, zklock.ErrBusy), errors.Is(err, context.DeadlineExceeded) && errors.As(err, &line):
		w.Header().Set("Retry-After", soon)
		http.Error(w, "busy: another request is being worked on", http.StatusConflict)
	case failure.IsOne(err, zklock.ErrClosed, zklock.ErrUnreachable, context.DeadlineExceeded):
		w.Header().Set("Retry-After", later)
		http.Error(w, "the lock service can't be reached", http.StatusServiceUnavailable)
	case errors.Is(err, context.Canceled): // not by us: by the server's BaseContext, say, or by a read deadline that has passed
		w.Header().Set("Retry-After", soon)
		if r.ProtoMajor == 1 {
			w.Header().Set("Connection", "close") // after such a deadline it would end every later request, too
		}
		http.Error(w, givenUp, http.StatusServiceUnavailable)
	default:
		http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
	}
}
