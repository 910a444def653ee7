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

// queueState is what a local queue does at the ensemble.
//
//	idle     → entering          advanceLocked, if calls wait
//	idle     → trying            TryLock
//	idle     → forgotten         advanceLocked, if no call waits
//	entering → taken, or idle    enter: idle if it failed, or if all calls have left
//	trying   → taken, or idle    TryLock
//	taken    → idle              dropLocked
type queueState uint8

const (
	idle      queueState = iota // new, or its last turn or attempt has ended
	entering                    // a goroutine queues at the ensemble for the waiting calls
	trying                      // a TryLock asks the ensemble; later calls wait for its outcome
	taken                       // there is a turn
	forgotten                   // removed from Queues.all, for good
)

// localQueue is the queue of this process's calls for one lock.
type localQueue struct {
	qs   *Queues
	conf *Config // the first caller's; those of later callers are equal

	mu      sync.Mutex // guards what follows, and the turns' fields that say so
	state   queueState
	turn    *Turn              // when taken
	waiters []waiter           // in order of arrival
	cancel  context.CancelFunc // when entering: cancels the attempt at the ensemble
	outside queue.Line         // when entering: our place at the ensemble, as last reported
}

// waiter is a call that waits in a queue. It is the channel on which the call receives its events.
// Its buffer holds one.
type waiter chan event

// event is what a waiter is told. One with a turn or an err ends its wait: the sender has removed
// the waiter from the queue. Any other is for the call to report to its caller.
type event struct {
	turn    *Turn
	err     error      // why the call gets no turn
	retried error      // why a step is repeated; nil if none is
	at      queue.Line // the call's place in line; zero if it is not known
}

// tellLocked sends e to w. If w has not received the previous event yet, e replaces it, and takes
// over its retried unless e has one itself. It does not block, because localQueue.mu keeps
// other senders out.
func (w waiter) tellLocked(e event) {
	select {
	case unread := <-w:
		e.retried = cmp.Or(e.retried, unread.retried)
	default:
	}
	w <- e
}

// refuseLocked ends the wait of all calls with err.
func (q *localQueue) refuseLocked(err error) {
	for _, w := range q.waiters {
		w.tellLocked(event{err: err})
	}
	q.waiters = nil
	q.advanceLocked()
}

// advanceLocked does what an idle queue has to do next: it enters the line at the ensemble if calls
// wait, and is forgotten if none does. It does nothing in any other state.
func (q *localQueue) advanceLocked() {
	if q.state != idle {
		return
	}
	if len(q.waiters) == 0 {
		q.state = forgotten
		q.qs.forget(q.conf.Key)
		return
	}
	ctx, cancel := context.WithCancel(q.conf.Context)
	if !q.conf.Go(func() { q.enter(ctx) }) {
		cancel()
		q.refuseLocked(context.Cause(ctx))
		return
	}
	q.state = entering
	q.cancel = cancel
}

// enter queues at the ensemble for all calls that wait here, and gives the turn to the first of
// them. ctx is cancelled when the last of them leaves (leave), or when the client is closed.
func (q *localQueue) enter(ctx context.Context) {
	ticket, err := q.conf.Acquire(ctx, false, q)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.outside = queue.Line{}
	if err == nil && len(q.waiters) == 0 {
		// The last waiter left just after Acquire had succeeded. It cancelled ctx, so err is not
		// nil from here on.
		q.giveUpLocked(ctx, ticket)
		err = ctx.Err()
	}
	q.cancel()
	switch {
	case err == nil:
		q.beginLocked(ticket).grantLocked()
	case errors.Is(err, context.Canceled): // all calls had left, or the client was closed
		q.state = idle
		// A call may have come since the last waiter left. After Close it is refused.
		q.advanceLocked()
	default:
		q.state = idle
		q.refuseLocked(err)
	}
}

// giveUpLocked gives up a ticket that no call wants any more. It unlocks the queue meanwhile:
// giving up takes a request.
func (q *localQueue) giveUpLocked(ctx context.Context, ticket *queue.Ticket) {
	q.mu.Unlock()
	defer q.mu.Lock()
	q.conf.GiveUp(ctx, ticket)
}

// Queued sends our place at the ensemble to the waiting calls, which report it to their callers.
func (q *localQueue) Queued(at queue.Line) { q.tell(at, nil) }

// Retried tells the waiting calls that a step is repeated. Until it has succeeded, our place is not
// known.
func (q *localQueue) Retried(cause error) { q.tell(queue.Line{}, cause) }

// Warn logs a warning about the line. The log's handler is the user's and may never return, so the
// warning is logged in its own goroutine, which the client joins.
func (q *localQueue) Warn(message string, args ...any) bool {
	q.conf.Go(func() {
		args = append([]any{"path", q.conf.Key.Path}, args...)
		q.conf.Logger.Warn("zklock: "+message, args...)
	})
	return true
}

// tell tells all waiting calls that our place at the ensemble is at, and that a step is repeated if
// retried is not nil.
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
		at = queue.Line{Ahead: 1, Node: q.turn.nodes[0], Owner: q.conf.Self}
	case at.Ahead == 0:
		at = queue.Line{Owner: q.conf.Self} // only the waiters before it here
	}
	at.Ahead += i
	return at
}

// waitAndUnlock adds a call to the queue, whose mutex is held, behind i others. Then it unlocks the
// mutex, and waits until the call is granted a turn. Meanwhile it reports the call's place in line
// to c.
func (q *localQueue) waitAndUnlock(ctx context.Context, i int, c queue.Caller) (*Turn, error) {
	me := make(waiter, 1)
	q.waiters = slices.Insert(q.waiters, i, me)
	if q.turn != nil {
		q.turn.watchOthersLocked()
	}
	at := q.placeLocked(i)
	q.advanceLocked()
	q.mu.Unlock()
	if at.Ahead > 0 {
		c.Queued(at)
	}
	return q.await(ctx, me, c)
}

// await waits until me is granted a turn, and meanwhile reports its events to c.
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
		case <-ctx.Done():
			return q.leave(ctx, me)
		case <-q.conf.Context.Done():
			return q.leave(ctx, me)
		}
	}
}

// leave removes w from the queue because ctx has ended or the client was closed, and returns the
// call's error. If the call's wait has been ended in the meantime, leave returns what w was told: a
// turn, or why there is none.
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
	q.mu.Unlock()
	return nil, q.waitError(ctx, at)
}

// waitError returns the error of a call that has left the queue from the place at.
func (q *localQueue) waitError(ctx context.Context, at queue.Line) error {
	if at.Node == "" {
		// Maybe there is no connection. Then that is the reason for the wait.
		if err := q.conf.Unreachable(ctx, q.conf.Key.Path); err != nil {
			return err
		}
	}
	var waitedFor error = queue.LineError{Line: at}
	if at.Ahead == 0 {
		waitedFor = errors.New("about to enter the line")
	}
	return failure.Ended(ctx, context.Cause(q.conf.Context), waitedFor)
}
