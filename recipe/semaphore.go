package recipe

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/session"
)

// A semaphore is a queue whose first contenders hold together, as far as their permits go:
//
//	a contender holds when the permits of all contenders before it, and its own, are at most the size.
//
// So permits are given in order of arrival, all or none, and a large request is not overtaken by small ones for ever.
// It is safe, because contenders before us can only disappear, so that the sum before us only falls.
//
// Waking. Who waits watches the contender immediately before it: that one's end wakes it, and so does that one's
// beginning to hold, which after a wait it makes known by setting its own znode's data. The first of those who wait,
// the head, sees that everybody before it holds; it watches the list of children, and so wakes whichever of them
// releases, and the directory's data, where the size is. A release hence wakes the head, and the one behind the znode
// that went if that one waits: two at most, however many wait.
//
// The directory's data hold the size, which the first contender writes. When it is lowered, those who hold may have
// more permits than there are, and a list does not tell them from those who wait: whoever came in without a wait has not
// made it known. So with the size, in one write, stands the largest that it ever was; and who waits is a head, too, if
// the one before it may hold by a larger size than the present one:
//
//   - the permits before us are no more than the largest size, and
//   - the one before us was created before the directory's data were last written. (Otherwise it has gone by the data
//     that we have read, since it reads them after its create, or by later ones. One that found later ones, and did not
//     have to wait, makes known that it holds.)
//
// So is one behind a znode that it may not read (ZooKeeper 3.9 and later say so): it would not be told of that one's end.
//
// To take one who waits for a holder is harmless: it makes another head, which is woken more often than it need be. So a
// Resize is one write. Whoever it concerns watches what it changes, and nothing depends on what the caller of Resize
// does behind it, or whether it learns of its success.

// PermitVerdict says how a semaphore's contender stands.
type PermitVerdict struct {
	Present bool     // the own znode is in the list; when it is not, only Foreign is set
	Holds   bool     // its permits are free
	Head    bool     // it is the first of those who wait
	Before  string   // the contender immediately before it
	Sum     int      // the permits of all before it
	Ahead   int      // contenders before it that wait
	First   string   // the first in line
	Foreign string   // a contender of another kind of lock
	Unknown []string // as in Verdict
}

// DecidePermits reads a list of a semaphore's directory from the point of view of the contender own. It is a pure
// function; czxids are as for Decide.
func DecidePermits(l Listing, own string, size int, czxids map[string]int64) PermitVerdict {
	me, ok := Parse(own)
	if !ok {
		return PermitVerdict{}
	}
	o := order{late: Late(me.Number) || Late(l.Counter), czxids: czxids}
	var v PermitVerdict
	var before []rank
	for _, name := range l.Names {
		n, ok := Parse(name)
		switch {
		case !ok:
		case name == own:
			v.Present = true
		case n.Kind != Permits:
			v.Foreign = name
		default:
			r := o.rank(name, n)
			if earlier, known := o.before(r, own, me); !known {
				v.Unknown = append(v.Unknown, name)
			} else if earlier {
				before = append(before, r)
			}
		}
	}
	if !v.Present {
		return PermitVerdict{Foreign: v.Foreign}
	}
	v.Unknown = o.withOwn(v.Unknown, own, me)
	slices.SortFunc(before, rank.compare)
	sum := 0
	for _, r := range before {
		n, _ := Parse(r.name)
		if sum += n.Permits; sum > size {
			v.Ahead++
		}
	}
	if len(before) > 0 {
		v.First, v.Before = before[0].name, before[len(before)-1].name
	}
	v.Sum, v.Head = sum, sum <= size
	v.Holds = sum+me.Permits <= size && len(v.Unknown) == 0
	return v
}

// Size returns the semaphore's size as its directory has it, and makes the directory, or writes size into one that has
// none. Another size is for the caller to judge. ErrConflict: the directory has data that are somebody else's.
func (q Queue) Size(ctx context.Context, s *session.Session, size int) (int, error) {
	for {
		state, stat, err := q.state(ctx, s)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			q.DirData = dirState{Size: size}.encode()
			if err := q.makeDir(ctx, s); err != nil {
				return 0, q.refused(err)
			}
			continue
		case err != nil:
			return 0, err
		case state.Size > 0:
			return state.Size, nil
		}
		state.Size = size
		if err := q.setState(ctx, s, state, stat.Version); err != nil && !again(ctx, err) {
			return 0, err
		}
	}
}

// resized is the name of a persistent znode that Resize puts into a container, so that this stays and remembers the
// size. It is no contender's.
const resized = "resized"

// Resize writes a new size. After an error it may have been written. ErrConflict: as for Size. With Container, the
// directory stays from now on.
func (q Queue) Resize(ctx context.Context, s *session.Session, size int) error {
	pin := q.Container
	q.Container = false
	for {
		if _, err := q.Size(ctx, s, size); err != nil {
			return err
		}
		state, stat, err := q.state(ctx, s)
		if err == nil {
			if state.Size == size && !pin {
				return nil
			}
			if state.Was = max(state.Was, state.Size); state.Was <= size {
				state.Was = 0
			}
			state.Size = size
			if pin {
				_, err = s.Multi(ctx, &zk.CreateRequest{Path: q.Dir + "/" + resized, Acl: q.ACL, Flags: int32(session.Persistent)},
					&zk.SetDataRequest{Path: q.Dir, Data: state.encode(), Version: stat.Version})
			} else {
				err = q.setState(ctx, s, state, stat.Version)
			}
		}
		switch {
		case err == nil:
			return nil
		case pin && errors.Is(err, zk.ErrNodeExists):
			pin = false // it stays already
		case !again(ctx, err):
			return err
		}
	}
}

func (q Queue) setState(ctx context.Context, s *session.Session, state dirState, version int32) error {
	_, err := s.Set(ctx, q.Dir, state.encode(), version)
	return err
}

// again reports whether a write to the directory's data should be tried again, after another look: somebody else wrote,
// the directory is gone, or the outcome is unknown.
func again(ctx context.Context, err error) bool {
	return errors.Is(err, zk.ErrBadVersion) || errors.Is(err, zk.ErrNoNode) || transient(err) && ctx.Err() == nil
}

// sizing is what a waiter knows of the semaphore's size.
type sizing struct {
	size    int
	largest int   // that it ever was
	written int64 // the zxid of the directory's data
}

// readSize reads the size. Data that somebody else has put in its place leave it as it was last known.
func (t *Ticket) readSize(ctx context.Context, z *sizing) error {
	state, stat, err := t.q.state(ctx, t.s)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return ErrGone
	case errors.Is(err, ErrConflict):
		return nil
	case err != nil:
		return err
	}
	z.written = stat.Mzxid
	if state.Size > 0 {
		z.size, z.largest = state.Size, max(state.Size, state.Was)
	}
	return nil
}

// WaitPermits is Wait for a semaphore's ticket. With try it does not wait: ErrBusy.
func (t *Ticket) WaitPermits(ctx context.Context, size int, try bool) error {
	t.timer = time.NewTimer(Settle)
	defer t.timer.Stop()
	names := t.names
	v, err := t.decidePermits(ctx, size)
	if err != nil {
		return t.waited(ctx, err)
	}
	if v.Foreign != "" {
		return t.q.conflict(v.Foreign)
	}
	z := sizing{size: size}
	if v.Holds { // by a size that was read before the znode was made, however long ago that is: it may have been lowered
		z.size = 0
		if err := t.readSize(ctx, &z); err != nil {
			return t.waited(ctx, err)
		}
		if z.size == 0 { // the directory was deleted after the size was read, and has been made again without
			if z.size, err = t.q.Size(ctx, t.s, size); err != nil {
				return t.waited(ctx, err)
			}
		}
		if z.size < size {
			t.names = names
			if v, err = t.decidePermits(ctx, z.size); err != nil {
				return t.waited(ctx, err)
			}
		}
	}
	silent := z.written < t.czxid // whoever stands behind us goes by the same size
	head := !writable(t.q.ACL)    // once the head, always the head: those before it hold until they go
	for ; ; silent = false {
		switch {
		case !v.Present:
			return ErrGone
		case v.Holds:
			if !silent {
				t.announce()
			}
			return nil
		case try:
			return &busyError{t.line}
		}
		if head = head || v.Head; head {
			v, err = t.headWait(ctx, v, &z)
		} else {
			v, head, err = t.lineWait(ctx, v, &z)
		}
		if err != nil {
			return t.waited(ctx, err)
		}
	}
}

// writable reports whether those who take a place may all set its data, and so make known that they hold. Where they
// may not, every one who waits has to be a head.
func writable(acl []zk.ACL) bool {
	for _, entry := range acl {
		if entry.Perms&zk.PermWrite == 0 {
			return false
		}
	}
	return true
}

func (t *Ticket) decidePermits(ctx context.Context, size int) (PermitVerdict, error) {
	own := path.Base(t.node)
	l := t.listing()
	t.names = nil
	v := DecidePermits(l, own, size, nil)
	if len(v.Unknown) > 0 {
		czxids, err := t.czxidsFor(ctx, own, v.Unknown)
		if err != nil {
			return v, err
		}
		v = DecidePermits(l, own, size, czxids)
	}
	ahead := 0
	if v.Present && !v.Holds {
		ahead = v.Ahead + 1
	}
	t.place(Verdict{Ahead: ahead, Head: v.First})
	return v, nil
}

// reread reads the list, and then the size: what is before us only becomes less, so that an older list is safe, and an
// older size is not.
func (t *Ticket) reread(ctx context.Context, z *sizing) (PermitVerdict, error) {
	if err := t.list(ctx); err != nil {
		return PermitVerdict{}, err
	}
	if err := t.readSize(ctx, z); err != nil {
		return PermitVerdict{}, err
	}
	return t.decidePermits(ctx, z.size)
}

// lineWait waits behind somebody who waits, until that one has gone or holds. It also reports whether that one turned
// out to hold already, or may, though not by the size as it is now: then we are the head.
func (t *Ticket) lineWait(ctx context.Context, was PermitVerdict, z *sizing) (v PermitVerdict, head bool, err error) {
	before := t.q.Dir + "/" + was.Before
	w, err := t.watchBefore(ctx, before)
	if err != nil {
		return was, false, err
	}
	if w != nil {
		defer w.Close()
	}
	// It may have begun to hold between our list and the watch: look again, now that nothing can be missed.
	v, err = t.reread(ctx, z)
	if err != nil || !v.Present || v.Holds || v.Head || v.Before != was.Before || hasFired(w) {
		return v, false, err
	}
	switch stat, err := t.s.Exists(ctx, before); {
	case err == nil && (stat.Version > 0 || v.Sum <= z.largest && stat.Czxid < z.written):
		return v, true, nil
	case errors.Is(err, zk.ErrNoAuth): // nor shall we hear when it begins to hold; a head does not depend on that
		return v, true, nil
	case err != nil && !errors.Is(err, zk.ErrNoNode):
		return v, false, err
	}
	if err := t.sleep(ctx, fired(w), nil); err != nil {
		return v, false, err
	}
	v, err = t.reread(ctx, z)
	return v, false, err
}

// headWait waits as the first of those who wait, until somebody who holds has gone or the size has changed.
func (t *Ticket) headWait(ctx context.Context, was PermitVerdict, z *sizing) (PermitVerdict, error) {
	t.before, t.untold = "", false
	dir, err := t.s.Watch(ctx, t.q.Dir)
	if err != nil {
		return was, err
	}
	defer dir.Close()
	list, names, stat, err := t.s.WatchChildren(ctx, t.q.Dir)
	if errors.Is(err, zk.ErrNoNode) {
		return was, ErrGone
	}
	if err != nil {
		return was, err
	}
	defer list.Close()
	t.names, t.counter = names, NewListing(nil, stat).Counter
	if err := t.readSize(ctx, z); err != nil { // after the watches: a change from here on wakes us
		return was, err
	}
	v, err := t.decidePermits(ctx, z.size)
	if err != nil || !v.Present || v.Holds {
		return v, err
	}
	if err := t.sleep(ctx, list.Fired(), dir.Fired()); err != nil {
		return v, err
	}
	return t.reread(ctx, z)
}

// announce wakes the one behind us, now that we hold: it may be its turn too.
func (t *Ticket) announce() {
	t.s.Go(func(ctx context.Context) {
		persist(ctx, func() error { // told; or our znode is gone, which tells as well
			_, err := t.s.Set(ctx, t.node, t.q.Data, -1)
			return err
		})
	})
}

// SizeError is the ErrConflict of a semaphore that has another size.
func (q Queue) SizeError(have, want int) error {
	return fmt.Errorf("%w: semaphore %s has %d permits at the ensemble, not %d", ErrConflict, q.Dir, have, want)
}

// TryPermits is Try for a semaphore: one list, and no write while the permits are not free.
func (q Queue) TryPermits(ctx context.Context, s *session.Session, size int) (*Ticket, error) {
	names, _, err := s.List(ctx, q.Dir)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return nil, err
	}
	line, sum := Line{}, q.Permits
	if line, err = q.survey(names); err != nil {
		return nil, err
	}
	for _, name := range names {
		n, _ := Parse(name)
		sum += n.Permits
	}
	if sum > size {
		return nil, &busyError{line}
	}
	t, err := q.Enter(ctx, s)
	if err != nil {
		return nil, err
	}
	if err = t.WaitPermits(ctx, size, true); err == nil {
		return t, nil
	}
	if leaveErr := t.Leave(ctx); leaveErr != nil && !errors.Is(leaveErr, ErrGone) && ctx.Err() != nil {
		return nil, leaveErr
	}
	return nil, err
}
