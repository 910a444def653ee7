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

	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/session"
)

// turnState says whether a call has the turn.
type turnState uint8

const (
	idle    turnState = iota // no call: it is kept, or waits until it is known whether it may be handed on
	granted                  // a call that has not made its hold yet: freeLocked, TryLock, grantLocked
	guarded                  // a hold: from Guard until Leave
	ended                    // no call any more: it was lost, or given up; no state follows
)

// contention is what a process that has the turn knows of contenders outside.
type contention uint8

const (
	unknown contention = iota // it has not looked yet
	none                      // no other contender is in line; the watch reports the next one
	present                   // another contender is in line, or it is not known
)

// contendedLimit is how long a process goes on handing a turn on once it has seen another process's contender wait.
const contendedLimit = time.Second

// errGivenUp is why a turn that was not lost has ended.
var errGivenUp = errors.New("handoff: the turn was given up")

// Turn is a ticket that holds, for as long as this process has it. To a hold it is its ticket: Leave hands it on, keeps
// it, or gives it up.
type Turn struct {
	*recipe.Ticket
	q     *queue
	nodes []string // the path of the ticket's znode

	ctx       context.Context // ends with the turn, and with the session
	cancel    context.CancelFunc
	idleTimer *time.Timer // nil when it is not kept

	// inDoubt counts the Multis of its holds that are under way or have an unknown outcome. While there is one the turn
	// is not handed on: it might be carried out in the next holder's time.
	inDoubt atomic.Int32

	// Guarded by q.mu.
	state        turnState
	cause        error                 // why it has ended
	onLoss       func(error)           // of the hold, when guarded
	onSet        func([]byte, zk.Stat) // likewise
	data         []byte                // the latest that another client has set
	dataStat     zk.Stat               // of these data; zero: none were set
	looking      bool                  // watch was started
	others       contention
	handoffsLeft int       // how often it may still be handed on unless others is none
	until        time.Time // and until when, once others is present
	idleSince    time.Time // when idle
}

// beginLocked makes the turn of a ticket that holds. No call has it yet: the caller grants it.
func (q *queue) beginLocked(ticket *recipe.Ticket) *Turn {
	t := &Turn{Ticket: ticket, q: q, nodes: ticket.Nodes(), handoffsLeft: q.lock.Handoffs}
	t.ctx, t.cancel = context.WithCancel(ticket.Session().Context())
	q.moveLocked(taken)
	q.turn = t
	ticket.OnSet(t.dataSet)
	ticket.Guard(t.endLost)
	if q.lock.IdleKeep > 0 {
		t.idleTimer = time.NewTimer(q.lock.IdleKeep)
		t.idleTimer.Stop()
		t.lookLocked() // it will be kept, mostly
	}
	return t
}

func (t *Turn) moveLocked(to turnState) {
	if t.state == ended || to == guarded && t.state != granted {
		panic(fmt.Sprintf("handoff: a turn goes from state %d to %d", t.state, to))
	}
	t.state = to
	t.onLoss = nil // of the hold that had it
	if to != guarded {
		t.onSet = nil
	}
}

// mayHandOnLocked reports whether the turn may be handed on, as far as is known now.
func (t *Turn) mayHandOnLocked() bool { return t.others == none || t.handoffsLeft > 0 }

// countLocked counts a hand-over, unless nobody waits outside: then the count begins anew when somebody does.
func (t *Turn) countLocked() {
	if t.others != none {
		t.handoffsLeft--
	}
}

// grantLocked gives the turn to the first waiter.
func (t *Turn) grantLocked() {
	t.moveLocked(granted)
	if len(t.q.waiters) > 1 {
		t.lookLocked()
	}
	w := t.q.waiters[0]
	t.q.waiters[0] = nil // for the garbage collector; slices.Delete would move all others
	t.q.waiters = t.q.waiters[1:]
	w.tellLocked(event{turn: t})
}

// nextLocked decides what happens to a turn whose holder has let go of it. One that it ends is to be given up.
func (t *Turn) nextLocked() {
	waiting := len(t.q.waiters) > 0
	switch {
	case t.state == ended: // who ended it deletes the znode
	case t.inDoubt.Load() > 0,
		t.others == present && (t.handoffsLeft == 0 || !waiting || !time.Now().Before(t.until)),
		!waiting && t.idleTimer == nil:
		t.endLocked(errGivenUp)
	case waiting && t.mayHandOnLocked():
		t.countLocked()
		t.grantLocked()
	default:
		if t.state != idle {
			t.moveLocked(idle)
			t.idleSince = time.Now()
			if t.idleTimer != nil {
				t.idleTimer.Reset(t.q.lock.IdleKeep)
			}
		}
		if waiting { // it is not known whether others wait outside: watch finds out
			t.lookLocked()
		}
	}
}

// endLocked ends the turn: no further call gets it.
func (t *Turn) endLocked(cause error) {
	t.moveLocked(ended)
	t.cause = cause
}

// dropLocked takes a turn that has ended out of its queue, so that the calls that wait there queue again at the ensemble.
func (t *Turn) dropLocked() {
	if t.q.turn != t {
		return
	}
	t.cancel()
	t.q.turn = nil
	t.q.moveLocked(empty)
	t.q.advanceLocked()
}

func (t *Turn) drop() {
	t.q.mu.Lock()
	defer t.q.mu.Unlock()
	t.dropLocked()
}

// endLost ends a turn that was lost. If there is a hold on it, that ends before any other call can get the lock.
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

// checkLocked returns why the turn has ended; nil when it is there, and its session's lease with it.
func (t *Turn) checkLocked() error {
	if t.state == ended {
		return t.cause
	}
	err := t.Session().Alive()
	if err != nil {
		t.endLocked(err)
		t.dropLocked()
	}
	return err
}

// update runs fn with the queue's mutex held. If fn has ended the turn, update deletes the znode, and then has local waiters
// queue again: behind other processes'.
func (t *Turn) update(ctx context.Context, fn func()) {
	t.q.mu.Lock()
	before := t.state
	fn()
	giveUp := before != ended && t.state == ended
	t.q.mu.Unlock()
	if giveUp {
		t.q.qs.conf.GiveUp(ctx, t.Ticket)
		t.drop()
	}
}

// Guard calls fn when the turn, which was granted to the caller, is lost, as recipe.Ticket.Guard does; at once if it is
// lost already.
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

// OnSet calls fn when another client sets the data of the turn's znode, as recipe.Ticket.OnSet does. Call it before Guard.
func (t *Turn) OnSet(fn func(data []byte, stat zk.Stat)) {
	t.q.mu.Lock()
	t.onSet = fn
	data, stat := t.data, t.dataStat
	t.q.mu.Unlock()
	if stat.Mzxid != 0 {
		fn(data, stat)
	}
}

// dataSet is called when another client has set the znode's data, which asks this process to let go: no more is handed on.
func (t *Turn) dataSet(data []byte, stat zk.Stat) {
	var onSet func([]byte, zk.Stat) // of the hold: then nothing is given up here
	t.update(t.Session().Context(), func() {
		t.others, t.handoffsLeft, t.until = present, 0, time.Time{}
		if stat.Mzxid > t.dataStat.Mzxid {
			t.data, t.dataStat = data, stat
		}
		onSet = t.onSet
		if t.state == idle {
			t.nextLocked()
		}
	})
	if onSet != nil {
		onSet(data, stat)
	}
}

// Leave ends a hold: the turn is handed to the next call that waits here, or is kept, or its znode is deleted. Nil: that
// is done. Errors are those of recipe.Ticket.Leave.
func (t *Turn) Leave(ctx context.Context) error {
	t.q.mu.Lock()
	t.nextLocked()
	over := t.state == ended
	t.q.mu.Unlock()
	if !over {
		return nil
	}
	err := t.Ticket.Leave(ctx)
	t.drop() // after the znode: see update
	return err
}

// Lose says that the hold has ended otherwise than by its release: see recipe.Ticket.Lose. The turn is not handed on; Leave
// deletes the znode.
func (t *Turn) Lose(cause error) {
	t.endLost(cause)
	t.Ticket.Lose(cause)
}

// Multi is recipe.Ticket.Multi. The turn is not handed on while it is under way or in doubt.
func (t *Turn) Multi(ctx context.Context, mayWrite func() error, ops ...any) (_ []zk.MultiResponse, err error) {
	t.inDoubt.Add(1) // before mayWrite is asked: the hold ends before Leave looks
	defer func() {
		if !errors.Is(err, session.ErrUnknownOutcome) {
			t.inDoubt.Add(-1)
		}
	}()
	return t.Ticket.Multi(ctx, mayWrite, ops...)
}

// Nodes returns the path of the znode. The caller must not change it.
func (t *Turn) Nodes() []string { return t.nodes }

// lookLocked starts the goroutine that watches for contenders outside, unless it was started: when a call waits here, or
// the turn is to be kept. A turn that no other call in the process wants costs neither a goroutine nor a request.
func (t *Turn) lookLocked() {
	if !t.looking {
		t.looking = t.q.qs.conf.Go(t.watch) // false: the client is closed, and the turn ends with its session
	}
}

// watch looks for contenders outside until one was seen, or the turn is over, and gives up a turn that was idle for too long.
//
// It lists the directory with a watch in one request, so that no contender is missed in between. Contenders that came
// before we held are in the list. A stale list is safe: the watch is on the same server and fires when it catches up.
// Across connections package session sets the watch again as of the latest state that was seen.
func (t *Turn) watch() {
	dir, own := path.Split(t.nodes[0])
	for {
		w, names, _, err := t.Session().WatchChildren(t.ctx, path.Clean(dir))
		if err == nil && !slices.Contains(names, own) {
			w.Close()
			err = zk.ErrNoNode
		}
		others := none
		switch {
		case err != nil && t.ctx.Err() != nil:
			return
		case errors.Is(err, zk.ErrNoNode):
			t.Missing(t.nodes[0])
			return
		case err != nil: // it is not known whether others wait: suppose that one does
			t.q.qs.conf.Logger.Warn("can't watch for others who want a lock, which is not handed on for long",
				"path", t.q.lock.Key.Path, "error", err)
			t.found(present)
			return
		case slices.ContainsFunc(names, func(name string) bool { _, ok := recipe.Parse(name); return ok && name != own }):
			others = present
		}
		t.found(others)
		if others == present || !t.await(w.Fired()) {
			w.Close()
			return
		}
	}
}

// await returns true when the watch has fired, and false when the turn is over.
func (t *Turn) await(fired <-chan struct{}) bool {
	var idleOver <-chan time.Time
	if t.idleTimer != nil {
		idleOver = t.idleTimer.C
	}
	for {
		select {
		case <-fired:
			return true
		case <-idleOver: // give the turn up if no call has had it for the idle time
			t.update(t.Session().Context(), func() {
				if t.state == idle && time.Since(t.idleSince) >= t.q.lock.IdleKeep {
					t.endLocked(errGivenUp)
				}
			})
		case <-t.ctx.Done():
			return false
		}
	}
}

// found notes what is known of contenders of other processes, and hands on, keeps or ends an idle turn accordingly.
func (t *Turn) found(others contention) {
	t.update(t.Session().Context(), func() {
		if t.dataStat.Mzxid != 0 { // it was asked to let go: no list undoes that
			others = t.others
		}
		if others == present && t.others != present {
			t.until = time.Now().Add(contendedLimit)
			if t.others == none {
				t.handoffsLeft = t.q.lock.Handoffs // else it has counted already
			}
		}
		t.others = others
		if t.state == idle {
			t.nextLocked()
		}
	})
}
