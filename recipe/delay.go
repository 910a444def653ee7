package recipe

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/trusted"
	"github.com/zklock/locker/session"
)

// A lock delay leaves the work of a lost holder time to end: the next holder waits for that long. The znode of a lost
// holder vanishes just like that of one that released. So each holder with a delay writes a note into the directory's
// data, under its znode's name, and only a release removes the note: a note without a znode is that of a lost holder. A
// note is written and removed in one transaction with a check, or the deletion, of the holder's znode: a holder that was
// stopped and goes on late can't touch it.
//
// A neighbour who may create can make a znode of a lost holder's name as soon as that has gone. So a note counts as a
// living holder's only while the znode of its name belongs to the session in the note. Of a mutex and a writer nothing
// need be read for that: the contender that is first in line holds alone, so all other notes are of lost holders.
//
// Source: Consul's lock-delay.

// MaxDelay bounds a lock delay.
const MaxDelay = time.Hour

// waitOutDelays waits out the delays of lost holders, and writes the ticket's own notes, in all queues side by side. It
// returns the first error.
func (t *Ticket) waitOutDelays(ctx context.Context, try bool) error {
	if len(t.entries) == 1 {
		return t.entries[0].waitOutDelay(ctx, try)
	}
	if !t.entries[0].q.Delays {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make(chan error, len(t.entries))
	for _, e := range t.entries {
		go func() { errs <- e.waitOutDelay(ctx, try) }() // joined below
	}
	var first error
	for range t.entries {
		if err := <-errs; err != nil && first == nil {
			first = err
			cancel()
		}
	}
	return first
}

// waitOutDelay makes one that is first in line wait out the delays of holders that were lost, and then notes its own. It
// costs two reads and a write. A delay is counted from the moment at which the next in line finds the note.
//
// Nil: the entry may hold. With try it does not wait out anything: ErrBusy. ErrConflict: the directory has data that are
// not this library's.
func (e *entry) waitOutDelay(ctx context.Context, try bool) error {
	if !e.q.Delays {
		return nil
	}
	until := map[string]time.Time{} // when the delay of a lost holder is over
	for {
		data, stat, err := e.q.readData(ctx, e.s)
		if errors.Is(err, zk.ErrNoNode) {
			return ErrGone
		}
		if err != nil {
			return err
		}
		if err := e.list(ctx); err != nil { // after the data: a contender that wrote a note meanwhile is in the list
			return err
		}
		last, err := e.lastDelay(ctx, data, until)
		if err != nil {
			return err
		}
		if rest := time.Until(until[last]); rest > 0 {
			if try {
				return &busyError{lostHolder(last)}
			}
			if err := e.sleep(ctx, rest, last); err != nil {
				return err
			}
			continue
		}
		for name := range until {
			data.forget(name)
		}
		data.note(e.name(), e.q.Delay, e.s.ID())
		e.delayNoted = true // from here on: a note whose reply is lost has to be removed as well
		_, err = e.s.Multi(ctx,
			&zk.CheckVersionRequest{Path: e.node, Version: -1},
			&zk.SetDataRequest{Path: e.q.Dir, Data: data.encode(), Version: stat.Version})
		switch {
		case err == nil:
			return nil
		case errors.Is(err, zk.ErrNoNode):
			return ErrGone
		case errors.Is(err, zk.ErrBadVersion), transient(err) && ctx.Err() == nil:
			// Somebody else wrote, or our own write's reply was lost: read again.
		default:
			return err
		}
	}
}

// lastDelay enters into until the lost holders that data has notes of, and returns the one whose delay ends last; "" when
// there is none. It reads e.names, and who owns the znodes of those that may hold beside us.
func (e *entry) lastDelay(ctx context.Context, data dirData, until map[string]time.Time) (last string, err error) {
	exists := map[string]bool{}
	for _, name := range e.names {
		exists[name] = true
	}
	e.names = nil
	var beside []string
	for name := range data.Delays {
		if exists[name] && name != e.name() && e.letsBeside(name) {
			beside = append(beside, name)
		}
	}
	nodes, err := e.s.StatsBelow(ctx, e.q.Dir, beside)
	if err != nil {
		return "", err
	}
	living := map[string]bool{e.name(): true}
	for i, n := range nodes {
		name := beside[i]
		living[name] = n.Err == nil && n.Stat.EphemeralOwner == data.Owners[name] || errors.Is(n.Err, zk.ErrNoAuth)
	}
	for name, d := range data.Delays {
		if living[name] {
			continue
		}
		if _, known := until[name]; !known {
			until[name] = time.Now().Add(min(d, MaxDelay)) // the data may be anybody's
		}
		if last == "" || until[name].After(until[last]) {
			last = name
		}
	}
	return last, nil
}

// letsBeside reports whether the contender that wrote a note may hold beside this entry, which is first in line.
func (e *entry) letsBeside(noted string) bool {
	n, ok := Parse(noted)
	return ok && (e.q.Kind == Permits && n.Kind == Permits || e.q.Kind == Read && n.Kind == Read)
}

// sleep waits for a delay at the head of the line.
func (e *entry) sleep(ctx context.Context, d time.Duration, lost string) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-e.s.Done():
		return e.s.Err()
	case <-ctx.Done():
		return session.Waited(ctx, trusted.Caller{}, Waiting{lostHolder(lost)})
	}
}

// deleteNoted deletes the znode and removes the note of its delay, both or neither.
func (e *entry) deleteNoted(ctx context.Context) error {
	for {
		data, stat, err := e.q.readData(ctx, e.s)
		if errors.Is(err, ErrConflict) { // somebody has overwritten the note
			return e.s.Delete(ctx, e.node, -1)
		}
		if err != nil {
			return err
		}
		data.forget(e.name())
		resps, err := e.s.Multi(ctx,
			&zk.DeleteRequest{Path: e.node, Version: -1},
			&zk.SetDataRequest{Path: e.q.Dir, Data: data.encode(), Version: stat.Version})
		switch {
		case err == nil, errors.Is(err, zk.ErrNoNode), len(resps) == 0:
			return err
		case !errors.Is(err, zk.ErrBadVersion):
			// The note can't be removed: access was taken from us. The place has to go all the same.
			return e.s.Delete(ctx, e.node, -1)
		}
	}
}
