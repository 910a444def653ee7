package handoff

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/queue"
	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/recipe"
)

// turnState is what a turn is used for.
//
//	granted          → guarded   Guard
//	granted, guarded → granted   grantLocked, for the next call that waits
//	any but ended    → ended     endLocked
type turnState uint8

const (
	granted turnState = iota // a call has it, but no hold yet
	guarded                  // a hold has it
	ended                    // it was lost or given up
)

// contendedLimit bounds the time in which a turn is handed on while another process's contender is
// in line, or may be.
const contendedLimit = 100 * time.Millisecond

// errGivenUp is the cause of a turn that ended without a loss.
var errGivenUp = errors.New("handoff: the turn was given up")

// Turn is a ticket that holds, as a hold uses it: Leave hands it on, or gives it up.
//
// A loss passes through it in one of two directions:
//   - The ticket reports it: Ticket.reportLoss calls ticketLost, which ends the turn and calls
//     onLoss, and that ends the hold. The hold then calls Lose, which finds the turn ended.
//   - The hold ends first, when WithMaxHold's time is over, for example, and calls Lose. That ends
//     the turn, and does not call onLoss.
type Turn struct {
	*queue.Ticket
	q     *localQueue
	nodes []string // the path of the ticket's znode

	ctx    context.Context // ends with the turn, and with the session
	cancel context.CancelFunc

	// inDoubt counts the Multis that are under way or have an unknown outcome. While there is one,
	// the turn is not handed on: the Multi might be carried out during the next hold.
	inDoubt atomic.Int32

	// Guarded by q.mu.
	state    turnState
	cause    error       // when ended: why
	onLoss   func(error) // when guarded: the hold's
	watching bool        // watch was started
	alone    bool        // watch has seen no other process's contender, and will see the next
	until    time.Time   // unless alone: there is no hand-over from then on
}

// beginLocked makes a turn of a ticket that holds, for a call.
func (q *localQueue) beginLocked(ticket *queue.Ticket) *Turn {
	t := &Turn{
		Ticket: ticket,
		q:      q,
		nodes:  ticket.Nodes(),
		until:  time.Now().Add(contendedLimit),
	}
	t.ctx, t.cancel = context.WithCancel(ticket.Session().Context())
	q.state = taken
	q.turn = t
	ticket.Guard(t.ticketLost)
	return t
}

// moveLocked changes the state. It panics if that is no move of turnState.
func (t *Turn) moveLocked(to turnState) {
	if t.state == ended || to == guarded && t.state != granted {
		panic(fmt.Sprintf("handoff: a turn goes from state %d to %d", t.state, to))
	}
	t.state = to
	t.onLoss = nil // the previous hold's
}

// grantLocked gives the turn to the first waiter, and removes that from the queue.
func (t *Turn) grantLocked() {
	t.moveLocked(granted)
	if len(t.q.waiters) > 1 {
		t.watchOthersLocked()
	}
	w := t.q.waiters[0]
	t.q.waiters[0] = nil // for the garbage collector; slices.Delete would move all the others
	t.q.waiters = t.q.waiters[1:]
	w.tellLocked(event{turn: t})
}

// handOnOrEndLocked hands on a turn whose holder has released it, or ends it. It returns false if
// the turn has ended, now or by a loss before: then the caller gives up the ticket.
func (t *Turn) handOnOrEndLocked() (handedOn bool) {
	switch {
	case t.state == ended:
		return false
	case t.mayBeHandedOnLocked():
		t.grantLocked()
		return true
	}
	t.endLocked(errGivenUp)
	return false
}

// mayBeHandedOnLocked reports whether the next waiter may have the turn.
func (t *Turn) mayBeHandedOnLocked() bool {
	if len(t.q.waiters) == 0 || t.Deleted() != nil || t.inDoubt.Load() > 0 {
		return false
	}
	return t.alone || time.Now().Before(t.until)
}

// endLocked ends the turn, which has not ended yet.
func (t *Turn) endLocked(cause error) {
	t.moveLocked(ended)
	t.cause = cause
}

// dropLocked removes an ended turn from its queue, so that the calls that wait there queue at the
// ensemble again. A second call does nothing.
func (t *Turn) dropLocked() {
	if t.q.turn != t {
		return
	}
	t.cancel()
	t.q.turn = nil
	t.q.state = idle
	t.q.advanceLocked()
}

func (t *Turn) drop() {
	t.q.mu.Lock()
	defer t.q.mu.Unlock()
	t.dropLocked()
}

// ticketLost is called by the ticket when that is lost. It ends the turn and its hold, if there is
// one, before any other call can get the lock.
func (t *Turn) ticketLost(cause error) {
	t.q.mu.Lock()
	if t.state == ended {
		t.q.mu.Unlock()
		return
	}
	onLoss := t.onLoss
	t.endLocked(cause)
	t.q.mu.Unlock()
	if onLoss != nil {
		onLoss(cause)
	}
	t.drop()
}

// check returns why the turn has ended, and ends it if its session's lease has expired. It returns
// nil if the turn goes on.
func (t *Turn) check() error {
	t.q.mu.Lock()
	defer t.q.mu.Unlock()
	if t.state == ended {
		return t.cause
	}
	err := t.Session().Alive()
	if err == nil && t.Deleted() != nil {
		err = queue.ErrGone // Guard is about to say so
	}
	if err != nil {
		t.endLocked(err)
		t.dropLocked()
	}
	return err
}

// Guard calls fn when the turn, which was granted to the caller, is lost. If it is lost already, it
// calls fn at once. See queue.Ticket.Guard.
func (t *Turn) Guard(fn func(error)) {
	t.q.mu.Lock()
	if t.state == ended {
		cause := t.cause
		t.q.mu.Unlock()
		fn(cause)
		return
	}
	t.moveLocked(guarded)
	t.onLoss = fn
	t.q.mu.Unlock()
}

// Leave releases the turn after a hold: it hands the turn to the next waiting call, or deletes the
// znode. Errors are those of queue.Ticket.Leave.
func (t *Turn) Leave(ctx context.Context) error {
	t.q.mu.Lock()
	handedOn := t.handOnOrEndLocked()
	t.q.mu.Unlock()
	if handedOn {
		return nil
	}
	err := t.Ticket.Leave(ctx)
	t.drop() // after the deletion, so that local waiters are behind other processes' contenders
	return err
}

// Lose says that the hold was lost: see queue.Ticket.Lose. The turn is not handed on, and Leave
// deletes the znode.
func (t *Turn) Lose(cause error) {
	t.q.mu.Lock()
	if t.state != ended {
		t.endLocked(cause)
	}
	// ticketLost drops the turn too, but only when onLoss has returned, which may call a user's
	// hook.
	t.dropLocked()
	t.q.mu.Unlock()
	t.Ticket.Lose(cause)
}

// Multi is queue.Ticket.Multi. While it is under way, or if its outcome is unknown, the turn is not
// handed on.
func (t *Turn) Multi(
	ctx context.Context, mayWrite func() error, ops ...session.Op,
) (_ []zk.MultiResponse, err error) {
	// The count comes before mayWrite: if that still finds the hold, Leave comes later and sees it.
	t.inDoubt.Add(1)
	defer func() {
		if !errors.Is(err, session.ErrUnknownOutcome) {
			t.inDoubt.Add(-1)
		}
	}()
	return t.Ticket.Multi(ctx, mayWrite, ops...)
}

// Nodes returns the path of the znode. The caller must not change it.
func (t *Turn) Nodes() []string { return t.nodes }

// watchOthersLocked starts watch, unless that has been done. It is called when a call waits here,
// so a turn that no other call wants costs neither a goroutine nor a request.
func (t *Turn) watchOthersLocked() {
	if !t.watching {
		// Go returns false if the client is closed. Then the turn ends with its session.
		t.watching = t.q.conf.Go(t.watch)
	}
}

// watch watches the directory until it sees another process's contender or the turn ends. It lists
// the directory again after each event, and polls, because an event may be lost.
func (t *Turn) watch() {
	interval := time.Duration(0)
	for {
		w, alone, err := t.watchDirectory()
		if err != nil {
			t.watchFailed(err)
			return
		}
		t.found(alone)
		if !alone {
			w.Close()
			return
		}
		interval = queue.NextPoll(interval, t.Session().Timeout())
		if !t.sleep(w, interval) {
			return
		}
	}
}

// watchDirectory lists the directory and watches it. alone reports whether there is no other
// process's contender. It returns zk.ErrNoNode if our own znode is not listed.
//
// One request lists the directory and sets the watch. So the list shows each contender that came
// before, and the watch fires for each that comes later. A stale list is safe: its watch is on the
// same server, and fires when that server catches up. On a new connection package session sets the
// watch again.
func (t *Turn) watchDirectory() (w *session.Watch, alone bool, err error) {
	dir, own := path.Split(t.nodes[0])
	w, names, _, err := t.Session().WatchChildren(t.ctx, path.Clean(dir))
	if err != nil {
		return nil, false, err
	}
	if !slices.Contains(names, own) {
		w.Close()
		return nil, false, zk.ErrNoNode
	}
	isOther := func(name string) bool {
		_, ok := recipe.Parse(name)
		return ok && name != own
	}
	return w, !slices.ContainsFunc(names, isOther), nil
}

// watchFailed handles err of watchDirectory. If it is not known whether other processes wait, it
// assumes that one does.
func (t *Turn) watchFailed(err error) {
	switch {
	case t.ctx.Err() != nil: // the turn has ended
	case errors.Is(err, zk.ErrNoNode):
		t.Missing(t.nodes[0])
	default:
		t.q.conf.Logger.Warn("zklock: can't see whether other processes wait, "+
			"so the lock is handed on in this one for a moment only",
			"path", t.q.conf.Key.Path, "error", failure.Text(err))
		t.found(false)
	}
}

// sleep sleeps until w fires or it is time to poll. It returns false if the turn ends first. w is
// used up: sleep closes it unless it has fired.
func (t *Turn) sleep(w *session.Watch, interval time.Duration) bool {
	fired := make(chan struct{}, 1)
	w.Wake(fired)
	select {
	case <-fired:
		return true
	case <-time.After(interval):
		w.Close()
		return true
	case <-t.ctx.Done():
		w.Close()
		return false
	}
}

// found records whether the process is alone. Hand-overs end contendedLimit after the process
// ceased to be alone or, if the first list does not find it alone, after the turn's beginning.
func (t *Turn) found(alone bool) {
	t.q.mu.Lock()
	defer t.q.mu.Unlock()
	if t.alone && !alone {
		t.until = time.Now().Add(contendedLimit)
	}
	t.alone = alone
}
