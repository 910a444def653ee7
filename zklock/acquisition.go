package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/queue"
)

// acquisition is a lock that was acquired: what its holds share. There is one hold, or with
// reentrancy several. It ends once, by end, for the first cause; ARCHITECTURE.md lists the causes
// and the functions that notice them. end cancels the contexts of all holds first. When the session
// ends, they have ended with it already.
//
// A hold ends alone, with ErrUnlocked, when one of several reentrant holds is unlocked (drop).
//
// The ticket is left once, by leave: at the last Unlock, or earlier if WithMaxHold's time is over.
// It does nothing if the ensemble has deleted the znodes, or will delete them when the session
// ends.
type acquisition struct {
	c      *Client
	ticket ticket
	paths  []string      // that it covers: the lock's, or all of a MultiLock's
	info   LockInfo      // of the call that acquired it
	since  time.Time     // when it was acquired
	limit  time.Duration // WithMaxHold's; 0 without it

	// sessionWork is the session's count of running work. The acquisition is one of it until its
	// last hold is unlocked.
	sessionWork *work

	mu      sync.Mutex // guards what follows; taken before the ticket's, and inUse.mu
	phase   phase
	cause   error       // why it is not held any more; nil while it is
	holds   []*Hold     // that have not been released
	maxHold *time.Timer // of WithMaxHold; may be nil
}

// phase is where an acquisition is in its life:
//
//	held → unlocked → released → left
//	held, unlocked  → lost     → left
//
// WithMaxHold's time does not end an unlocked acquisition, which its release is about to end.
//
// The session may have ended, and all contexts with it, before a phase tells of it: see ended.
type phase uint8

const (
	held     phase = iota
	unlocked       // the last hold was unlocked, and release is about to end the acquisition
	released       // it has ended by the Unlock of its last hold
	lost           // it has ended for another cause
	left           // it has ended, and the ticket was left
)

// newHold makes the acquisition of a ticket that holds, for the call w, and its first hold. work is
// the session's count, in which the caller has counted the acquisition already. Acquisition and
// hold are one allocation: with local handoff a hold may last for a microsecond.
func (l *lock) newHold(t ticket, w *waiting, work *work) *Hold {
	both := &struct {
		a   acquisition
		h   Hold
		one [1]*Hold
	}{a: acquisition{
		c:           l.c,
		ticket:      t,
		paths:       l.dirs,
		info:        w.info,
		since:       time.Now(),
		limit:       l.o.maxHold,
		sessionWork: work,
	}}
	a, h := &both.a, &both.h
	a.holds = append(both.one[:0], h)
	h.bind(a, w.caller)
	l.c.use.update(func() {
		delete(l.c.use.waits, w)
		l.c.use.holds[a] = struct{}{}
	})
	h.tellAcquired(a.info, w.since, 0) // it joins no other call's acquisition
	if a.limit > 0 {
		a.startMaxHold()
	}
	t.Guard(a.endLost) // last: no loss is reported before the acquisition was
	return h
}

// startMaxHold starts the timer of WithMaxHold, whose time began when the lock was acquired: a hook
// may have taken some of it.
func (a *acquisition) startMaxHold() {
	a.mu.Lock() // expire must not run before the field is set
	defer a.mu.Unlock()
	a.maxHold = time.AfterFunc(time.Until(a.since.Add(a.limit)), a.expire)
}

// mayJoin returns nil if a call for l, of the given kind, may have a further hold of the
// acquisition. The call's caller has a hold of it, and it covers l's path dir. Errors are those of
// lock.reenter.
//
// Mutexes, MultiLocks, elections and jobs are one kind of contender, so they exclude each other on
// one path. A reentrant Mutex may join a hold of any of them.
func (a *acquisition) mayJoin(l *lock, dir string, kind LockKind) error {
	joined, joining := contenderKind(a.info.Kind), contenderKind(kind)
	switch {
	case !joined.Shares(joining):
		// A read/write lock on the path of a mutex that the caller holds, or the reverse: the
		// directory is in use by another kind of lock.
		return fmt.Errorf("%w: the caller holds %s as a %s", ErrConflict, dir, a.info.Kind)
	case kind == KindMulti && !samePaths(a.paths, l.dirs):
		// A MultiLock of which the caller holds some paths, or of which he holds others too.
		return fmt.Errorf("%w: %s", ErrDeadlock, dir)
	case joined != joining:
		// The read lock under the write lock, or the reverse.
		return fmt.Errorf("%w, as a %s", ErrDeadlock, joined)
	case !l.o.reentrant:
		return ErrDeadlock
	}
	return nil
}

// join adds a hold for a Lock with the context caller. It returns false if the acquisition has
// ended meanwhile, or is about to.
func (a *acquisition) join(caller context.Context) (h *Hold, joined bool) {
	h = &Hold{}
	h.bind(a, caller) // calls the caller's methods, so not under mu
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.liveLocked() {
		h.untieWork()
		h.cancel(nil)
		return nil, false
	}
	a.holds = append(a.holds, h)
	return h, true
}

// covers reports whether the acquisition covers the client and path of k.
func (a *acquisition) covers(k lockKey) bool {
	return k.c == a.c && slices.Contains(a.paths, k.path)
}

// drop ends the context of a hold that was released, and removes the hold. last is true if no hold
// is left.
func (a *acquisition) drop(h *Hold) (last bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	h.cancel(ErrUnlocked)
	a.holds = slices.DeleteFunc(a.holds, func(other *Hold) bool { return other == h })
	if len(a.holds) > 0 {
		return false
	}
	if a.phase == held {
		a.phase = unlocked
	}
	return true
}

// release ends an acquisition whose last hold was unlocked, and leaves the ticket. If the
// acquisition was lost before, release returns the cause.
func (a *acquisition) release(ctx context.Context) error {
	a.sessionWork.end()
	if cause := a.ended(); cause != nil {
		a.endLost(cause) // Guard may not have reported it yet
	}
	if !a.end(released, ErrUnlocked) {
		_ = a.leave(ctx) // if it fails, the deletion goes on in the background
		return a.ended()
	}
	defer a.c.ends.Done() // lock.take has reserved it
	err := a.leave(ctx)
	switch {
	case errors.Is(err, queue.ErrGone):
		err = ErrNodeDeleted
	case errors.Is(err, queue.ErrTaken): // one of a MultiLock's znodes; others may still exist
		err = fmt.Errorf("%w, and the other places are being given up: %w",
			ErrNodeDeleted, hide(err, zk.ErrNoAuth))
	}
	a.tellReleased(err)
	return err
}

// tellReleased reports the release, which has returned err.
func (a *acquisition) tellReleased(err error) {
	level, event := slog.LevelDebug, "lock released"
	if a.info.Kind == KindElection {
		level, event = slog.LevelInfo, "leadership given up"
	}
	if errors.Is(err, ErrNodeDeleted) { // nobody noticed before the release
		level, event = slog.LevelWarn, "lock found deleted at its release, so two may have held it"
	}
	a.c.tell(level, event, a.c.opts.hooks.Released, a.after(err))
}

// endLost ends an acquisition that was lost for cause, and reports the loss. It does nothing if the
// acquisition has ended.
//
// The ticket may report that the znode is gone although the session's end has deleted it: a process
// that was suspended may learn of the deletion before it reads the clock. So endLost asks for the
// lease first. If that has expired, it is the cause.
func (a *acquisition) endLost(cause error) {
	switch {
	case errors.Is(cause, queue.ErrGone):
		cause = cmp.Or(a.ticket.Session().Alive(), error(ErrNodeDeleted))
	case errors.Is(cause, queue.ErrUnexplained): // no server has said who deleted the znode
		cause = cmp.Or(a.ticket.Session().Alive(), error(ErrNodeGone))
	}
	if a.end(lost, cause) {
		a.finishLost(cause)
	}
}

// expire runs when WithMaxHold's time is over. It ends the acquisition, unless something has ended
// it already, and leaves the ticket.
//
// It does neither if the last hold was unlocked: then release does both. And the session may have
// ended although Guard has not reported it yet. Then its end is the cause, as the contexts say.
func (a *acquisition) expire() {
	cause := cmp.Or(a.ticket.Session().Alive(), error(ErrMaxHold))
	a.mu.Lock()
	if a.phase == unlocked || errors.Is(a.cause, ErrUnlocked) {
		a.mu.Unlock()
		return
	}
	hasEndedIt := a.endLocked(lost, cause)
	a.mu.Unlock()
	a.ticket.Session().Go(func(ctx context.Context) {
		_ = a.leave(ctx) // if it fails, the deletion goes on in the background
	})
	if hasEndedIt {
		a.finishLost(cause) // last, because the hook may take its time
	}
}

// end ends the acquisition: its phase is released or lost from then on, and the context of every
// hold has ended with cause. It returns false if the acquisition had ended before.
func (a *acquisition) end(as phase, cause error) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.endLocked(as, cause)
}

func (a *acquisition) endLocked(as phase, cause error) bool {
	if a.cause != nil {
		return false
	}
	a.phase, a.cause = as, cause
	for _, h := range a.holds {
		// under mu: a caller that finds the acquisition ended finds the contexts ended too
		h.cancel(cause)
	}
	// A loss may leave znodes behind: then the timer goes on, to give them up when WithMaxHold's
	// time is over.
	if a.maxHold != nil && !a.mayHaveZnodesLocked() {
		a.maxHold.Stop()
	}
	a.c.use.update(func() { delete(a.c.use.holds, a) })
	return true
}

// finishLost does what is left to do when end has ended the acquisition as lost. It has the ticket
// lose its turn, so that no other call of this process gets it, and reports the loss.
func (a *acquisition) finishLost(cause error) {
	defer a.c.ends.Done() // lock.take has reserved it
	a.ticket.Lose(cause)
	event := "lock lost: its context has ended"
	if a.info.Kind == KindElection {
		event = "leadership lost: its context has ended"
	}
	level := slog.LevelWarn
	if errors.Is(cause, ErrClosed) {
		level = slog.LevelDebug // it is Close's doing
	}
	a.c.tell(level, event, a.c.opts.hooks.Lost, a.after(cause))
}

// leave leaves the ticket of an acquisition that has ended, as queue.Ticket.Leave does. Only the
// first call does anything.
func (a *acquisition) leave(ctx context.Context) error {
	a.mu.Lock()
	mayHaveZnodes := a.mayHaveZnodesLocked()
	wasLost := a.phase == lost
	a.phase = left
	if a.maxHold != nil {
		a.maxHold.Stop()
	}
	cause := a.cause
	a.mu.Unlock()
	if !mayHaveZnodes {
		return nil
	}
	if wasLost {
		// Otherwise Leave would hand the turn on, with WithLocalHandoff. finishLost calls Lose too,
		// but perhaps it has not yet.
		a.ticket.Lose(cause)
	}
	return a.ticket.Leave(ctx)
}

// mayHaveZnodesLocked reports whether an acquisition that has ended may have znodes that leave has
// to delete.
func (a *acquisition) mayHaveZnodesLocked() bool {
	switch {
	case a.phase == left: // leave has been called
		return false
	case errors.Is(a.cause, ErrNodeDeleted) && len(a.ticket.Nodes()) == 1: // its only one
		return false
	case a.phase == released:
		return true
	}
	return a.ticket.Session().Err() == nil // otherwise the ensemble deletes them with the session
}

// ended returns why the lock is not held any more, or nil while it is. It knows of the session's
// end before Guard has reported that.
func (a *acquisition) ended() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.endedLocked()
}

// live reports whether the acquisition may have further holds: it has not ended, and is not about
// to.
func (a *acquisition) live() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.liveLocked()
}

func (a *acquisition) liveLocked() bool {
	return a.phase == held && a.endedLocked() == nil && a.ticket.Deleted() == nil
}

func (a *acquisition) endedLocked() error {
	if a.cause != nil {
		return a.cause
	}
	return context.Cause(a.ticket.Session().Context())
}

// status returns what Status shows, and whether the acquisition is live.
func (a *acquisition) status() (i LockInfo, live bool) {
	a.mu.Lock()
	n, live := len(a.holds), a.liveLocked()
	a.mu.Unlock()
	i = a.whole()
	i.Context, i.Since, i.SafeUntil, i.Count = nil, a.since, a.ticket.Session().SafeUntil(), n
	i.Paths = slices.Clone(i.Paths)
	return i, live
}

// after returns what a hook is told when the hold has ended.
func (a *acquisition) after(err error) LockInfo {
	i := a.whole()
	i.Held, i.Err = time.Since(a.since), err
	return i
}

// whole returns the call with the hold's token and znode.
func (a *acquisition) whole() LockInfo {
	i := a.info
	i.Token, i.Node = Token(a.ticket.Czxid()), a.ticket.Nodes()[0]
	return i
}
