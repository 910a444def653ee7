package handoff

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/zklock/locker/internal/queue"
	"github.com/zklock/locker/internal/session/failure"
)

type queueState uint8

const (
	empty     queueState = iota // new, or its last turn or attempt has ended; then entering, trying or forgotten
	entering                    // a goroutine queues at the ensemble for the waiting calls; then taken, or empty if it failed or all have left
	trying                      // a TryLock asks the ensemble, and later calls wait for its outcome; then taken, or empty
	taken                       // there is a turn; then empty
	forgotten                   // no call waits and there is no turn: removed from Queues.all, for good
)

type localQueue struct {
	qs   *Queues
	lock *Lock // the first caller's; later callers' are equal

	mu      sync.Mutex // guards what follows, and the turns' fields that say so
	state   queueState
	turn    *Turn              // when taken
	waiters []waiter           // in order of arrival
	cancel  context.CancelFunc // in entering: cancels the attempt at the ensemble
	outside queue.Line         // in entering: our place at the ensemble, as last reported
}

// waiter is a call that waits in a queue: the channel on which it receives its events. Its buffer
// holds one.
type waiter chan event

// event ends a wait (with turn or err; the sender has removed the waiter from the queue), or is for
// the caller to report.
type event struct {
	turn    *Turn
	err     error      // why the call gets no turn
	retried error      // why a step is made again; nil: none is
	at      queue.Line // the call's place in line; zero: not known
}

// tellLocked sends e to w. If w has not received the previous event yet, e replaces it, and keeps
// its retried unless e has one. It does not block: under localQueue.mu there is no other sender.
func (w waiter) tellLocked(e event) {
	select {
	case unread := <-w:
		e.retried = cmp.Or(e.retried, unread.retried)
	default:
	}
	w <- e
}

func (q *localQueue) refuseLocked(err error) {
	for _, w := range q.waiters {
		w.tellLocked(event{err: err})
	}
	q.waiters = nil
	q.advanceLocked()
}

// advanceLocked moves a queue that is empty to entering if calls wait, else to forgotten.
func (q *localQueue) advanceLocked() {
	if q.state != empty {
		return
	}
	if len(q.waiters) == 0 {
		q.state = forgotten
		q.qs.mu.Lock()
		delete(q.qs.all, q.lock.Key)
		q.qs.mu.Unlock()
		return
	}
	ctx, cancel := context.WithCancel(q.lock.Context)
	if !q.lock.Go(func() { q.enter(ctx) }) {
		cancel()
		q.refuseLocked(context.Cause(ctx))
		return
	}
	q.state = entering
	q.cancel = cancel
}

// enter queues at the ensemble for all calls that wait here. ctx ends with the last of them, or
// with the client.
func (q *localQueue) enter(ctx context.Context) {
	ticket, err := q.lock.Acquire(ctx, false, q)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.outside = queue.Line{}
	if err == nil && len(q.waiters) == 0 { // the last waiter left, and cancelled ctx, just after Acquire had succeeded
		q.mu.Unlock()
		q.lock.GiveUp(ctx, ticket)
		q.mu.Lock()
		err = ctx.Err()
	}
	q.cancel()
	switch {
	case err == nil:
		q.beginLocked(ticket).grantLocked()
	case errors.Is(err, context.Canceled): // all had left, or the client was closed
		q.state = empty
		q.advanceLocked() // a call may have come since the last waiter left; after Close it is refused
	default:
		q.state = empty
		q.refuseLocked(err)
	}
}

// Queued sends our place at the ensemble to the waiting calls, which report it to their callers.
func (q *localQueue) Queued(at queue.Line) { q.tell(at, nil) }

// Retried tells the waiting calls that a step is made again. Until it has succeeded, our place is
// not known.
func (q *localQueue) Retried(cause error) { q.tell(queue.Line{}, cause) }

// Warn logs a warning about the line. The log's handler is the user's, and may not return: so it
// has a goroutine of its own, which the Client joins.
func (q *localQueue) Warn(message string, args ...any) bool {
	q.lock.Go(func() {
		q.lock.Logger.Warn("zklock: "+message, append([]any{"path", q.lock.Key.Path}, args...)...)
	})
	return true
}

func (q *localQueue) tell(at queue.Line, retried error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.outside = at
	for i, w := range q.waiters { // computed here, so that the waiters need not take the mutex
		e := event{retried: retried}
		if at.Ahead > 0 {
			e.at = q.placeLocked(i)
		}
		w.tellLocked(e)
	}
}

// placeLocked returns the place in line of the waiter with index i: behind the holder, earlier
// contenders at the ensemble, and earlier waiters here. Node is empty if no contender is known to
// hold the lock, or to wait before this process's.
func (q *localQueue) placeLocked(i int) queue.Line {
	at := q.outside
	switch {
	case q.turn != nil:
		at = queue.Line{Ahead: 1, Node: q.turn.nodes[0], Owner: q.lock.Self}
	case at.Ahead == 0:
		at = queue.Line{Owner: q.lock.Self} // only the waiters before it here
	}
	at.Ahead += i
	return at
}

// await waits until me is granted a turn, and meanwhile reports its place in line to c.
func (q *localQueue) await(ctx context.Context, me waiter, c queue.Caller) (*Turn, error) {
	for {
		select {
		case e := <-me:
			if e.retried != nil {
				c.Retried(e.retried)
			}
			if e.turn != nil || e.err != nil {
				return e.turn, e.err
			}
			if e.at.Ahead > 0 {
				c.Queued(e.at)
			}
			continue
		case <-ctx.Done():
		case <-q.lock.Context.Done():
		}
		return q.leave(ctx, me)
	}
}

// leave removes w from the queue because ctx has ended or the client was closed, and returns the
// call's error; or what w was told in the meantime: a turn, or why there is none.
func (q *localQueue) leave(ctx context.Context, w waiter) (*Turn, error) {
	q.mu.Lock()
	i := slices.Index(q.waiters, w)
	if i < 0 {
		q.mu.Unlock()
		e := <-w
		return e.turn, e.err
	}
	at := q.placeLocked(i)
	q.waiters = slices.Delete(q.waiters, i, i+1)
	if len(q.waiters) == 0 && q.state == entering {
		q.cancel()
	}
	q.advanceLocked()
	q.mu.Unlock()
	if at.Node == "" { // maybe because there is no connection: then the error says why
		if err := q.lock.Unreachable(ctx, q.lock.Key.Path); err != nil {
			return nil, err
		}
	}
	var what error = queue.LineError{Line: at}
	if at.Ahead == 0 {
		what = errors.New("about to enter the line")
	}
	return nil, failure.Ended(ctx, context.Cause(q.lock.Context), what)
}
