package handoff

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/zklock/locker/internal/trusted"
	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/session"
)

// queueState is what a queue does.
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

// queue is the local queue of one lock.
type queue struct {
	qs   *Queues
	lock *Lock // of the first call; the others' are equal

	mu          sync.Mutex // guards what follows, and the queue's waiters and turns
	state       queueState
	turn        *Turn // when taken
	first, last *waiter
	n           int                // of them
	cancel      context.CancelFunc // of entering: no call waits here any more
	entered     chan struct{}      // of entering: closed at its end
	outside     recipe.Line        // of entering: our place at the ensemble, as last heard
}

// waiter is a call that waits in a queue.
type waiter struct {
	granted chan grant    // capacity 1: filled by the goroutine that takes it out of the queue, unless it leaves by itself
	news    chan struct{} // capacity 1

	// Guarded by queue.mu.
	prev, next *waiter
	queued     bool
	moved      bool  // news: the place in line
	retried    error // news: a step was made again
}

// grant is what a waiter waited for.
type grant struct {
	turn    *Turn
	counted bool // against the turn's hand-overs
	err     error
}

// moveLocked changes the state.
func (q *queue) moveLocked(to queueState) {
	if queueMoves[q.state]&(1<<to) == 0 {
		panic(fmt.Sprintf("handoff: a local queue goes from state %d to %d", q.state, to))
	}
	q.state = to
}

// pushLocked puts w at the end of the queue, or, when it has been there before, at its head.
func (q *queue) pushLocked(w *waiter, front bool) {
	w.queued = true
	q.n++
	switch {
	case q.first == nil:
		q.first, q.last = w, w
	case front:
		w.next, q.first.prev, q.first = q.first, w, w
	default:
		w.prev, q.last.next, q.last = q.last, w, w
	}
}

// removeLocked takes w out of the queue.
func (q *queue) removeLocked(w *waiter) {
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		q.first = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		q.last = w.prev
	}
	w.prev, w.next, w.queued = nil, nil, false
	q.n--
}

// grantLocked ends the first waiter's wait.
func (q *queue) grantLocked(g grant) {
	w := q.first
	q.removeLocked(w)
	w.granted <- g
}

// refuseLocked ends the wait of all.
func (q *queue) refuseLocked(err error) {
	for q.first != nil {
		q.grantLocked(grant{err: err})
	}
	q.advanceLocked()
}

// advanceLocked moves an empty queue to entering if calls are waiting, else to forgotten.
func (q *queue) advanceLocked() {
	if q.state != empty {
		return
	}
	if q.first == nil {
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

// enter queues at the ensemble on behalf of all calls that wait here. It goes on when the first of them, or any other, leaves;
// ctx ends when the last has left, and when the client is closed.
func (q *queue) enter(ctx context.Context) {
	ticket, err := q.lock.Acquire(ctx, false, q)
	q.mu.Lock()
	allLeft := ctx.Err() != nil
	q.cancel()
	close(q.entered)
	q.outside = recipe.Line{}
	if err != nil {
		q.moveLocked(empty)
		switch {
		case q.qs.conf.Context.Err() != nil:
			q.refuseLocked(q.qs.conf.Closed)
		case allLeft:
			q.advanceLocked() // a call may have come since the last one left
		default:
			q.refuseLocked(err)
		}
		q.mu.Unlock()
		return
	}
	t := q.beginLocked(ticket)
	unwanted := q.first == nil // the last call left when it was our turn; it is not kept, as no call has had it
	if unwanted {
		t.endLocked(errGivenUp)
	} else {
		t.grantLocked(false)
	}
	q.mu.Unlock()
	if unwanted {
		t.giveUp(ctx)
	}
}

// Queued passes our place at the ensemble on to the calls that wait here, which report it themselves.
func (q *queue) Queued(at recipe.Line) { q.heard(at, nil) }

// Retried is Queued for a step that is made again: our place is unknown until it was.
func (q *queue) Retried(cause error) { q.heard(recipe.Line{}, cause) }

func (q *queue) heard(at recipe.Line, retried error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.outside = at
	for w := q.first; w != nil; w = w.next {
		w.moved = true
		if retried != nil {
			w.retried = retried
		}
		select {
		case w.news <- struct{}{}:
		default: // it has not looked yet
		}
	}
}

// placeLocked returns w's place in line: behind the holder, the contenders of other processes before ours, and the calls
// that came before it here. known: a contender is known to hold the lock, or to wait before this process.
func (q *queue) placeLocked(w *waiter) (at recipe.Line, known bool) {
	at = q.outside
	switch {
	case q.turn != nil && q.turn.state != idle:
		at = recipe.Line{Ahead: 1, Holder: q.turn.nodes[0], Who: q.lock.Self}
	case at.Ahead == 0:
		at.Who = q.lock.Self // only those before it here, if there are any
	}
	known = at.Ahead > 0
	if w == q.last { // as one that has just come
		at.Ahead += q.n - 1
		return at, known
	}
	for p := w.prev; p != nil; p = p.prev {
		at.Ahead++
	}
	return at, known
}

// waitEnded is the error of a wait whose ctx has ended.
func (q *queue) waitEnded(ctx context.Context, at recipe.Line, known bool) error {
	if q.qs.conf.Context.Err() != nil {
		return q.qs.conf.Closed
	}
	if !known { // perhaps for want of a connection: then there is more to say
		if err := q.qs.conf.Unreachable(ctx, q.lock.Key.Path); err != nil {
			return err
		}
	}
	if at.Ahead == 0 {
		return session.Waited(ctx, trusted.Caller{}, errors.New("about to enter the line"))
	}
	return session.Waited(ctx, trusted.Caller{}, recipe.LineError{Line: at})
}

// busyLocked is the answer to a TryLock.
func (q *queue) busyLocked() error {
	switch {
	case q.turn != nil && q.n > 0:
		return busyError{fmt.Sprintf("held by this process (%s), %d of it waiting", q.lock.Self, q.n)}
	case q.turn != nil:
		return busyError{fmt.Sprintf("held by this process (%s)", q.lock.Self)}
	}
	return busyError{fmt.Sprintf("this process (%s) is in line for it already", q.lock.Self)}
}

// busyError is recipe.ErrBusy for a lock that this process has or waits for.
type busyError struct{ msg string }

func (e busyError) Error() string        { return e.msg }
func (e busyError) Is(target error) bool { return target == recipe.ErrBusy }
