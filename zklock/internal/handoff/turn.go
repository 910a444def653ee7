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
type Turn struct {
	*queue.Ticket
	q     *localQueue
	nodes []string // the path of the ticket's znode

	ctx    context.Context // ends with the turn, and with the session
	cancel context.CancelFunc

	// inDoubt counts the Multis that are under way or have an unknown outcome. While there is one,
	// the turn is not handed on, since the Multi might be carried out during the next hold.
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
	ticket.Guard(t.endLost)
	return t
}

func (t *Turn) moveLocked(to turnState) {
	if t.state == ended || to == guarded && t.state != granted {
		panic(fmt.Sprintf("handoff: a turn goes from state %d to %d", t.state, to))
	}
	t.state = to
	t.onLoss = nil // the previous hold's
}

// grantLocked gives the turn to the first waiter.
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

// nextLocked decides what becomes of a turn whose holder has released it: it is handed on, or it
// ends. If it has ended, by this or by a loss, the caller gives up the ticket.
func (t *Turn) nextLocked() {
	switch {
	case t.state == ended: // it was lost
	case t.mayBeHandedOnLocked():
		t.grantLocked()
	default:
		t.endLocked(errGivenUp)
	}
}

// mayBeHandedOnLocked reports whether the next waiter may have the turn.
func (t *Turn) mayBeHandedOnLocked() bool {
	if len(t.q.waiters) == 0 || t.Deleted() != nil || t.inDoubt.Load() > 0 {
		return false
	}
	return t.alone || time.Now().Before(t.until)
}

func (t *Turn) endLocked(cause error) {
	t.moveLocked(ended)
	t.cause = cause
}

// dropLocked removes an ended turn from its queue, so that the calls that wait there queue at the
// ensemble again.
func (t *Turn) dropLocked() {
	if t.q.turn != t {
		return
	}
	t.cancel()
	t.q.turn = nil
	t.q.state = empty
	t.q.advanceLocked()
}

func (t *Turn) drop() {
	t.q.mu.Lock()
	defer t.q.mu.Unlock()
	t.dropLocked()
}

// endLost ends a turn that was lost, and its hold, if there is one, before any other call can get
// the lock.
func (t *Turn) endLost(cause error) {
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

// Leave releases the turn after a hold: it is handed to the next waiting call, or its znode is
// deleted. It returns nil if that is done. Otherwise it returns the errors of queue.Ticket.Leave.
func (t *Turn) Leave(ctx context.Context) error {
	t.q.mu.Lock()
	t.nextLocked()
	handedOn := t.state != ended
	t.q.mu.Unlock()
	if handedOn {
		return nil
	}
	err := t.Ticket.Leave(ctx)
	t.drop() // after the znode, so that local waiters are behind other processes' contenders
	return err
}

// Lose says that the hold was lost: see queue.Ticket.Lose. The turn is not handed on, and Leave
// deletes the znode.
func (t *Turn) Lose(cause error) {
	t.endLost(cause)
	t.drop() // not only when onLoss has returned: it may call a user's hook
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
		t.watching = t.q.lock.Go(t.watch)
	}
}

// watch watches the directory for other processes' contenders until it sees one or the turn ends.
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
// One request lists the directory and sets the watch, so no contender is missed in between; earlier
// ones are in the list. A stale list is safe: its watch is on the same server, and fires when that
// server catches up. On a new connection package session sets the watch again, so that no event is
// lost.
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
		t.q.lock.Logger.Warn("zklock: can't see whether other processes wait, "+
			"so the lock is handed on in this one for a moment only",
			"path", t.q.lock.Key.Path, "error", failure.Text(err))
		t.found(false)
	}
}

// sleep sleeps until w fires or the interval has passed, since the event may be lost. It returns
// false if the turn ends first.
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

// found records whether the process is alone. Hand-overs end contendedLimit after another process's
// contender was first seen.
func (t *Turn) found(alone bool) {
	t.q.mu.Lock()
	defer t.q.mu.Unlock()
	if t.alone && !alone {
		t.until = time.Now().Add(contendedLimit)
	}
	t.alone = alone
}
