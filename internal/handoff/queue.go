package handoff

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/zklock/locker/internal/trusted"
	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/session"
)

type queueState uint8

const (
	empty     queueState = iota // new, or its last turn or attempt has ended; advanceLocked picks the next state
	entering                    // its goroutine queues at the ensemble for the calls that wait here
	trying                      // a TryLock asks the ensemble; later calls wait for the outcome
	taken                       // there is a turn
	forgotten                   // no call waits and there is no turn: Queues has it no more
)

// queueMoves are all transitions of a queue.
var queueMoves = [...]uint8{
	empty:     1<<entering | 1<<trying | 1<<forgotten,
	entering:  1<<taken | 1<<empty, // we hold; an error, or all calls that waited have left
	trying:    1<<taken | 1<<empty, // we hold; busy, or an error
	taken:     1 << empty,          // the turn is over
	forgotten: 0,
}

type queue struct {
	qs   *Queues
	lock *Lock // of the first call; the others' are equal

	mu      sync.Mutex // guards what follows, and the queue's waiters and turns
	state   queueState
	turn    *Turn              // when taken
	waiters []waiter           // in order of arrival
	cancel  context.CancelFunc // of entering: no call waits here any more
	entered chan struct{}      // of entering: closed at its end
	outside recipe.Line        // of entering: our place at the ensemble, as last reported
}

// waiter is a call that waits in a queue: the channel on which it is told of its wait. It has room for one event.
type waiter chan event

// event is what a waiter is told: that its wait is over, by the goroutine that takes it out of the queue; else what it is to
// report.
type event struct {
	turn    *Turn
	err     error       // why there is no turn
	retried error       // a step was made again; nil: none
	at      recipe.Line // its place in line; zero: that is not known
}

// tellLocked tells w of e, and of a step that was made again if w has not heard of that yet. It does not block, since nothing
// else sends to w.
func (w waiter) tellLocked(e event) {
	select {
	case unread := <-w:
		e.retried = cmp.Or(e.retried, unread.retried)
	default:
	}
	w <- e
}

func (q *queue) moveLocked(to queueState) {
	if queueMoves[q.state]&(1<<to) == 0 {
		panic(fmt.Sprintf("handoff: a local queue goes from state %d to %d", q.state, to))
	}
	q.state = to
}

func (q *queue) refuseLocked(err error) {
	for _, w := range q.waiters {
		w.tellLocked(event{err: err})
	}
	q.waiters = nil
	q.advanceLocked()
}

// advanceLocked moves an empty queue to entering if calls are waiting, else to forgotten.
func (q *queue) advanceLocked() {
	if q.state != empty {
		return
	}
	if len(q.waiters) == 0 {
		q.moveLocked(forgotten)
		q.qs.mu.Lock()
		delete(q.qs.all, q.lock.Key)
		q.qs.mu.Unlock()
		return
	}
	ctx, cancel := context.WithCancel(q.qs.conf.Context)
	if !q.qs.conf.Go(func() { q.enter(ctx) }) {
		cancel()
		q.refuseLocked(q.qs.conf.Closed)
		return
	}
	q.moveLocked(entering)
	q.cancel, q.entered = cancel, make(chan struct{})
}

// enter queues at the ensemble for all calls that wait here. ctx ends when the last has left, and when the client is closed.
func (q *queue) enter(ctx context.Context) {
	ticket, err := q.lock.Acquire(ctx, false, q)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.outside = recipe.Line{}
	if err == nil && len(q.waiters) == 0 { // the last call left when it was our turn, and cancelled ctx
		q.mu.Unlock()
		q.qs.conf.GiveUp(ctx, ticket)
		q.mu.Lock()
		err = ctx.Err()
	}
	allLeft := ctx.Err() != nil
	q.cancel()
	close(q.entered)
	switch {
	case err == nil:
		q.beginLocked(ticket).grantLocked()
	case allLeft:
		q.moveLocked(empty)
		q.advanceLocked() // a call may have come since the last one left; if the client was closed, it is refused here
	default:
		q.moveLocked(empty)
		q.refuseLocked(err)
	}
}

// Queued passes our place at the ensemble on to the calls that wait here, which report it themselves.
func (q *queue) Queued(at recipe.Line) { q.tell(at, nil) }

// Retried is Queued for a step that is made again: our place is unknown until it was.
func (q *queue) Retried(cause error) { q.tell(recipe.Line{}, cause) }

func (q *queue) tell(at recipe.Line, retried error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.outside = at
	for i, w := range q.waiters { // each is told its place, as to find that out by itself would take the mutex for as long
		e := event{retried: retried}
		if at.Ahead > 0 {
			e.at = q.placeLocked(i)
		}
		w.tellLocked(e)
	}
}

// placeLocked returns the place in line of the waiter with index i: behind the holder, the contenders of other processes
// before ours, and the calls that came before it here. Without a Holder no other contender is known to hold the lock, or to
// wait before this process.
func (q *queue) placeLocked(i int) recipe.Line {
	at := q.outside
	switch {
	case q.turn != nil && q.turn.state != idle:
		at = recipe.Line{Ahead: 1, Holder: q.turn.nodes[0], Who: q.lock.Self}
	case at.Ahead == 0:
		at = recipe.Line{Who: q.lock.Self} // only those before it here, if there are any
	}
	at.Ahead += i
	return at
}

// await waits until me is granted a turn, and reports to c where it is in line meanwhile.
func (q *queue) await(ctx context.Context, me waiter, c Caller) (*Turn, error) {
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
		case <-q.qs.conf.Context.Done():
		}
		return nil, q.leave(ctx, me)
	}
}

// leave takes w out of the queue because ctx has ended, or the client was closed, and returns what it was waiting for. If it
// was granted a turn already, the turn is handed to the next call.
func (q *queue) leave(ctx context.Context, w waiter) error {
	q.mu.Lock()
	i := slices.Index(q.waiters, w)
	if i < 0 {
		e := <-w
		q.mu.Unlock()
		if e.err != nil {
			return e.err
		}
		e.turn.update(ctx, func() {
			e.turn.handoffsLeft = min(e.turn.handoffsLeft+1, q.lock.Handoffs) // it made no hold: the hand-over does not count
			e.turn.nextLocked()
		})
		return q.waitEnded(ctx, recipe.Line{})
	}
	at := q.placeLocked(i)
	q.waiters = slices.Delete(q.waiters, i, i+1)
	if len(q.waiters) == 0 && q.state == entering {
		q.cancel()
	}
	q.advanceLocked()
	q.mu.Unlock()
	return q.waitEnded(ctx, at)
}

func (q *queue) waitEnded(ctx context.Context, at recipe.Line) error {
	if q.qs.conf.Context.Err() != nil {
		return q.qs.conf.Closed
	}
	if at.Holder == "" { // perhaps for want of a connection: then there is more to say
		if err := q.qs.conf.Unreachable(ctx, q.lock.Key.Path); err != nil {
			return err
		}
	}
	if at.Ahead == 0 {
		return session.Waited(ctx, trusted.Caller{}, errors.New("about to enter the line"))
	}
	return session.Waited(ctx, trusted.Caller{}, recipe.LineError{Line: at})
}

// freeLocked grants the turn to a call when no other call waits here and the turn may be handed on. Nil: there is none.
func (q *queue) freeLocked() *Turn {
	t := q.turn
	if t == nil || t.state != idle || len(q.waiters) > 0 || !t.mayHandOnLocked() || t.checkLocked() != nil {
		return nil
	}
	t.countLocked()
	t.moveLocked(granted)
	return t
}

func (q *queue) busyLocked() error {
	switch n := len(q.waiters); {
	case q.turn == nil:
		return busyError("this process (" + q.lock.Self + ") is in line for it already")
	case n > 0:
		return busyError(fmt.Sprintf("held by this process (%s), %d of it waiting", q.lock.Self, n))
	}
	return busyError("held by this process (" + q.lock.Self + ")")
}

// busyError is recipe.ErrBusy for a lock that this process has or waits for.
type busyError string

func (e busyError) Error() string        { return string(e) }
func (e busyError) Is(target error) bool { return target == recipe.ErrBusy }
