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

// Middleware runs a handler under the lock that the function choose returns for each request. That
// is usually the Do of a Mutex whose path zklock.KeyPath makes from the request. In the whole
// fleet, requests with one path go one after the other, in order of arrival; those with different
// paths go side by side. A request for which choose returns a nil Do is served without a lock.
//
// A request waits at most for wait, which must be positive, or for its lock's WithMaxWait, if that
// is less. With WithMaxWait(0) it does not wait in line. It leaves the line as soon as its own
// context ends: with its client, or with a deadline that the server gave it.
//
// net/http notices the end of an HTTP/1 connection only when the request's body has been read. So a
// body of known length, up to 64 KB, is read into memory before the wait, and the handler reads it
// from there. The lock is not held while a client sends it. A longer body, one of unknown length,
// or one that waits for "100 Continue" stays unread during the wait. If its client goes away,
// nobody notices, and the request waits to the end.
//
// WriteTimeout of the http.Server counts from the end of the request's header. It must exceed the
// sum of wait, the handler's time (WithMaxHold bounds it) and the release's (at most a tenth of the
// session timeout). Otherwise the work may be done although the client hears nothing and tries
// again. If WriteTimeout does not exceed wait alone, all requests are refused.
//
// When Shutdown of the http.Server is called, which the middleware finds by http.ServerContextKey,
// the requests that wait are turned away with 503, and those that hold their locks finish.
//
// Most services want WithMaxHold, for a handler that may hang. Where keys come from outside, they
// want WithContainer: without it each key leaves its lock's directory in the ensemble's memory
// forever (zklock prune removes them).
//
// # Answers without the handler
//
//	400   choose returned an error, or a lock whose path can't be one, such as KeyPath's of the
//	      empty key. Or the body could not be read.
//	409   Another client has the lock, and the wait, or the request's deadline, is over. The
//	      answer has Retry-After.
//	503   The ensemble could not be reached in all that time, or, for a request that does not
//	      wait, within 5 s. Or the Client is closed, or the server has given up the request. The
//	      answer has Retry-After.
//	500   The lock can't work: a bad option, a path that is another kind of lock, access refused.
//	      Or the server's WriteTimeout is no longer than wait: its ErrorLog says so, once.
//
// An error of choose that is a Refusal, or wraps one, chooses its own answer. The answers' texts
// name no path, key or holder; hooks and logger of the Client tell why.
//
// # In the handler
//
// The request's context ends when the lock is lost, or with the request, whichever is first;
// context.Cause says which. zklock.HoldFrom finds the hold in it, for the token, SafeUntil or
// Multi. The ResponseWriter is the server's own: flushing, hijacking and http.ResponseController
// work. The middleware can't take an answer back: a handler whose context ended before its work was
// done has to say so, and what it has written before stays written.
//
// The lock does not cover what goes on after the handler has returned. That is above all a
// connection that it has hijacked, and the end of a long answer that the server sends then.
//
// Nor does the end of the lock interrupt a handler that reads a long body from a slow client, or
// writes to one: those calls know no context. Deadlines of http.ResponseController, or ReadTimeout
// and WriteTimeout of the http.Server, bound them. A read deadline goes when the body has been read
// to its end, as it does without the lock. One that passes before, or that is set later, ends the
// request's context, and that of later requests on its connection. ReadTimeout begins again after
// the wait for a body that is still to be read.
//
// # Release
//
// The lock is released after the handler has returned, or panicked, and before the end of a short
// answer is sent. So a client that has read such an answer finds the lock free. The exception is
// when no server is connected, or none answers for about a tenth of the session timeout. Then the
// answer is sent, and the lock is released in the background, or ends with the session. Whatever
// becomes of the release, the answer is the handler's. A panic goes on, unchanged.
//
// The returned function may be called, and what it returns may serve, concurrently. Middleware
// panics if wait is not positive.
func Middleware(
	wait time.Duration, choose func(*http.Request) (Do, error),
) func(http.Handler) http.Handler {
	if wait <= 0 {
		panic(fmt.Sprintf("lockhttp: wait %v: is not positive", wait))
	}
	m := &middleware{wait: wait, choose: choose}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			m.answer(next, w, r)
		})
	}
}

// middleware is what one Middleware's requests share.
type middleware struct {
	wait    time.Duration
	choose  func(*http.Request) (Do, error)
	servers servers
}

// answer answers r by next, under the lock if r needs one.
func (m *middleware) answer(next http.Handler, w http.ResponseWriter, r *http.Request) {
	sent := r.Body // choose may put another body in its place, such as one that bounds it
	do, err := m.choose(r)
	if err != nil {
		refuseUnnamed(w, err)
		return
	}
	if do == nil {
		next.ServeHTTP(w, r)
		return
	}
	server, _ := r.Context().Value(http.ServerContextKey).(*http.Server)
	known := m.servers.of(server)
	if !leavesTime(m.wait, server) {
		known.warning.Do(func() { warnOfWriteTimeout(m.wait, server) })
		serverError(w)
		return
	}
	body, err := readAhead(w, r, sent)
	if err != nil {
		http.Error(w, "the request's body can't be read", http.StatusBadRequest)
		return
	}
	l := &lockedRequest{next: next, w: w, r: r, body: body, server: server}
	l.waitAndServe(do, m.wait, known.untilShutdown)
}

// phase is how far a request that needs a lock has come. It changes once.
//
//	waiting → served    by work: the lock is ours, and the handler is called
//	waiting → givenUp   by giveUp: the wait is over, or the server shuts down
type phase = int32

const (
	waiting phase = iota
	served
	givenUp
)

// lockedRequest is a request that waits for its lock and is then served under it.
type lockedRequest struct {
	next   http.Handler
	w      http.ResponseWriter
	r      *http.Request
	body   io.ReadCloser // for the handler
	server *http.Server  // may be nil

	ctx    context.Context // of the wait and of the work
	cancel context.CancelCauseFunc
	phase  atomic.Int32
}

// waitAndServe waits for the lock by do, at most for wait or until untilShutdown ends, and serves
// the request under it. If there is no lock, it refuses the request.
func (l *lockedRequest) waitAndServe(do Do, wait time.Duration, untilShutdown context.Context) {
	l.ctx, l.cancel = context.WithCancelCause(l.r.Context())
	defer l.cancel(nil)
	timer := time.AfterFunc(wait, func() { l.giveUp(errWaited) })
	defer timer.Stop()
	stop := context.AfterFunc(untilShutdown, func() { l.giveUp(http.ErrServerClosed) })
	defer stop()
	err := do(l.ctx, l.work)
	if l.phase.Load() == served {
		// The answer is the handler's. The Client's hooks and logger tell of a loss, or of a
		// release that failed.
		return
	}
	// An error that says no more than that l.ctx has ended does not say why. The cause does, and
	// refuse chooses the status by it: the wait is over, or the server shuts down.
	if cause := context.Cause(l.ctx); cause != nil && errors.Is(err, l.ctx.Err()) {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	refuse(l.w, l.r, err)
}

// giveUp ends the wait because of why. It does nothing if the wait has ended.
func (l *lockedRequest) giveUp(why error) {
	if l.phase.CompareAndSwap(waiting, givenUp) {
		l.cancel(why)
	}
}

// work serves the request under its lock. ctx is the work's.
func (l *lockedRequest) work(ctx context.Context) error {
	if l.phase.CompareAndSwap(waiting, served) {
		l.allowReading()
		l.callHandler(ctx)
		return nil
	}
	if l.phase.Load() == served {
		// The Do called its work again, but a request has one answer.
		return errors.New("lockhttp: the request was served before")
	}
	<-l.ctx.Done() // the lock came too late: giveUp is about to cancel
	return fmt.Errorf("%w: %w", zklock.ErrBusy, context.Cause(l.ctx))
}

// allowReading gives the handler the server's ReadTimeout for a body that was not read ahead, since
// the wait has used up the one that began with the request.
func (l *lockedRequest) allowReading() {
	if l.server == nil || l.server.ReadTimeout <= 0 || l.r.ProtoMajor != 1 {
		return
	}
	_, wasRead := l.body.(*readBody)
	if wasRead || l.body == nil || l.body == http.NoBody {
		return
	}
	deadline := time.Now().Add(l.server.ReadTimeout)
	// A writer that knows no deadlines has none that has passed.
	_ = http.NewResponseController(l.w).SetReadDeadline(deadline)
}

// callHandler calls the handler with a copy of the request. What the handler sets in the copy is
// copied back: net/http removes the temporary files of a form, and middleware around this one reads
// the pattern and the path's values.
func (l *lockedRequest) callHandler(ctx context.Context) {
	inner := l.r.WithContext(ctx)
	inner.Body = l.body
	defer func() {
		if b, ok := l.body.(*readBody); ok {
			b.leave()
		}
		outer := l.r.Body
		*l.r = *inner.WithContext(l.r.Context())
		l.r.Body = outer
	}()
	l.next.ServeHTTP(l.w, inner)
}

// leavesTime reports whether a server, which may be nil, leaves time for an answer after the wait.
func leavesTime(wait time.Duration, server *http.Server) bool {
	return server == nil || server.WriteTimeout <= 0 || wait < server.WriteTimeout
}

// warnOfWriteTimeout logs, where the server does, that it leaves no time for an answer.
func warnOfWriteTimeout(wait time.Duration, server *http.Server) {
	logf := log.Printf
	if server.ErrorLog != nil {
		logf = server.ErrorLog.Printf
	}
	logf("lockhttp: a wait of %v leaves no time for an answer: WriteTimeout is %v",
		wait, server.WriteTimeout)
}

// servers are the servers whose requests have come, by *http.Server.
type servers struct{ known sync.Map }

// knownServer is what the middleware keeps of one server.
type knownServer struct {
	untilShutdown context.Context // ends when the server is shut down
	warning       sync.Once       // warnOfWriteTimeout
}

// of returns what is kept of a server, which may be nil.
//
// The first request of a server registers a function for its Shutdown. Shutdown calls no function
// that is registered later. So if the very first requests come while Shutdown runs, they wait for
// their locks all the same.
func (s *servers) of(server *http.Server) *knownServer {
	if server == nil {
		return &knownServer{untilShutdown: context.Background()}
	}
	if known, ok := s.known.Load(server); ok {
		return known.(*knownServer)
	}
	ctx, cancel := context.WithCancel(context.Background())
	known, loaded := s.known.LoadOrStore(server, &knownServer{untilShutdown: ctx})
	if loaded {
		cancel() // another request was faster, and has registered its own
	} else {
		server.RegisterOnShutdown(cancel)
	}
	return known.(*knownServer)
}

// errWaited is why a request stops waiting for its lock.
var errWaited = fmt.Errorf("lockhttp: the wait is over: %w", context.DeadlineExceeded)

// Refusal is an error for the function that chooses a lock. It chooses the answer to a request that
// has no lock, such as 404 for a key that does not exist. Any other error is answered with 400.
type Refusal struct {
	Status int    // 400 to 599; anything else is answered with 500
	Text   string // what the client reads; "" means the status's name
}

// Error returns the text.
func (e *Refusal) Error() string { return e.text() }

func (e *Refusal) text() string {
	if e.Text != "" {
		return e.Text
	}
	return http.StatusText(e.Status)
}

// refuseUnnamed answers a request for which err was returned instead of a lock.
func refuseUnnamed(w http.ResponseWriter, err error) {
	var own *Refusal
	switch {
	case !errors.As(err, &own):
		http.Error(w, "the request names no lock", http.StatusBadRequest)
	case own.Status < 400 || own.Status > 599:
		serverError(w)
	default:
		http.Error(w, own.text(), own.Status)
	}
}

func serverError(w http.ResponseWriter) {
	const code = http.StatusInternalServerError
	http.Error(w, http.StatusText(code), code)
}

// refuse answers a request that did not get its lock because of err. It also answers one whose
// client seems to be gone: a middleware around this one may have cancelled the context, with the
// client still there, and a request without an answer would be answered with "200 OK".
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	const (
		soon, later = "1", "5" // seconds
		byServer    = "the server has given up the request"
	)
	retry := func(after, text string, code int) {
		w.Header().Set("Retry-After", after)
		http.Error(w, text, code)
	}
	switch {
	case errors.Is(err, zklock.ErrPath):
		http.Error(w, "the request names no lock", http.StatusBadRequest)
	case errors.Is(err, http.ErrServerClosed):
		retry(soon, byServer, http.StatusServiceUnavailable)
	case isBusy(err):
		retry(soon, "busy: another request is being worked on", http.StatusConflict)
	case failure.IsOne(err, zklock.ErrClosed, zklock.ErrUnreachable, context.DeadlineExceeded):
		retry(later, "the lock service can't be reached", http.StatusServiceUnavailable)
	case errors.Is(err, context.Canceled):
		// We did not cancel the context. The client has gone, or another middleware or the server's
		// BaseContext has ended it, or a read deadline has passed. Such a deadline would end every
		// later request on the connection, too.
		if r.ProtoMajor == 1 {
			w.Header().Set("Connection", "close")
		}
		retry(soon, byServer, http.StatusServiceUnavailable)
	default:
		serverError(w)
	}
}

// isBusy reports whether err says that another client has the lock. The error of a wait that has
// ended says so if it has a place in line: without one, no server had answered.
func isBusy(err error) bool {
	var line queue.LineError
	return errors.Is(err, zklock.ErrBusy) ||
		errors.Is(err, context.DeadlineExceeded) && errors.As(err, &line)
}
