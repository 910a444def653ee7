package recipe

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/trusted"
	"github.com/zklock/locker/session"
)

// A lock delay leaves the work of a lost holder time to end: the next holder waits that long. The znode of a lost holder
// vanishes just as that of a released one. So each holder with a delay writes a note under its znode's name into the
// directory's data, and only a release removes the note: a note without a znode is a lost holder's. It is written and
// removed in one transaction with a check, or the deletion, of the holder's znode, so a stopped holder that goes on can't
// touch it.
//
// A neighbour who may create can make a znode of a lost holder's name as soon as that has gone. So a note counts as a
// living holder's only while the znode of its name belongs to the session in the note. Of a mutex and a writer nothing need
// be read for that: the contender that is first in line holds alone, so all other notes are lost holders'.
//
// Only the note is left of a lost holder, so the directory has to stay as long as the note counts: it can't be a container.
// The idea is Consul's lock-delay.

// MaxDelay bounds a lock delay.
const MaxDelay = time.Hour

// waitOutDelays waits out lost holders' delays and writes our notes, in all queues at once. It returns the first error.
func (t *Ticket) waitOutDelays(ctx context.Context) error {
	if !t.entries[0].q.Delays {
		return nil
	}
	all, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make(chan error, len(t.entries))
	for _, e := range t.entries {
		go func() { errs <- e.waitOutDelay(all) }() // joined below
	}
	var first error
	for range t.entries {
		if first = cmp.Or(first, <-errs); first != nil {
			cancel()
		}
	}
	return first
}

// waitOutDelay waits out the delays of lost holders, for an entry that is first in line, and then writes the entry's own
// note. It costs two reads and a write. A delay counts from the moment at which the first in line found the note.
//
// Nil: the entry may hold. ErrBusy: a Try does not wait. ErrConflict: the directory's data are not this library's.
func (e *entry) waitOutDelay(ctx context.Context) error {
	until := map[string]time.Time{} // when each lost holder's delay is over; zero after the first look at its note
	for {
		data, stat, err := e.q.readData(ctx, e.t.s)
		if err != nil {
			return asGone(err)
		}
		if err := e.list(ctx); err != nil { // after the data: a contender that wrote a note meanwhile is in the list
			return err
		}
		lost, again, err := e.lostHolders(ctx, data, until)
		switch {
		case err != nil:
			return err
		case again:
			continue
		}
		if stat.Version, err = e.noteFound(ctx, data, stat.Version, lost, until); err == nil {
			last := slices.MaxFunc(append(lost, ""), func(a, b string) int { return until[a].Compare(until[b]) })
			if rest := time.Until(until[last]); rest > 0 {
				if e.t.try {
					return &busyError{lostHolder(last)}
				}
				if err := e.sleep(ctx, rest, last); err != nil {
					return err
				}
				continue
			}
			for _, name := range lost {
				data.forget(name)
			}
			data.note(e.name(), e.q.Delay, e.t.s.ID())
			e.delayNoted = true // from here on: a note whose reply is lost has to be removed as well
			_, err = e.writeNotes(ctx, data, stat.Version)
		}
		if err = asGone(err); !writeAgain(ctx, err) { // otherwise another write came first, or the reply was lost
			return err
		}
	}
}

// writeNotes writes the directory's data if they are still those of version and the entry's own znode exists.
func (e *entry) writeNotes(ctx context.Context, data dirData, version int32) (zk.Stat, error) {
	resps, err := e.t.s.Multi(ctx,
		&zk.CheckVersionRequest{Path: e.node, Version: -1},
		&zk.SetDataRequest{Path: e.q.Dir, Data: data.encode(), Version: version})
	if err != nil {
		return zk.Stat{}, err
	}
	return *resps[1].Stat, nil
}

// noteFound sets until[name] to the end of the delay of each of lost, and returns the version of the directory's data. The
// first to find a loss records the time in the data, by the leader's clock, so that the delay ends even if no caller waits
// for all of it. Later ones count from it; differences and adjustments of the servers' clocks change the rest.
func (e *entry) noteFound(ctx context.Context, data dirData, version int32, lost []string, until map[string]time.Time) (int32, error) {
	fresh := slices.DeleteFunc(slices.Clone(lost), func(name string) bool { return !until[name].IsZero() })
	if len(fresh) == 0 {
		return version, nil
	}
	stat, err := e.writeNotes(ctx, data, version) // unchanged: the answer has the leader's time
	if err != nil {
		return 0, err
	}
	now, first := time.Now(), false
	for _, name := range lost {
		if data.Found[name] == 0 {
			data.Found[name], first = stat.Mtime, true
		}
	}
	if first {
		if stat, err = e.writeNotes(ctx, data, stat.Version); err != nil {
			return 0, err
		}
	}
	for _, name := range fresh {
		delay := min(data.Delays[name], MaxDelay) // any client may have written the data
		ago := time.Duration(stat.Mtime-data.Found[name]) * time.Millisecond
		until[name] = now.Add(min(delay-ago, delay))
	}
	return stat.Version, nil
}

// lostHolders returns the names of the lost holders among those with a note in data: by a list read after data, their
// znodes do not exist. A holder that released between the two reads is not lost, and the next data have no note of it. So a
// note must be seen twice: again is true when one is seen for the first time, and until remembers it. It uses up e.names,
// and reads who owns the znodes of those that may hold beside us.
func (e *entry) lostHolders(ctx context.Context, data dirData, until map[string]time.Time) (lost []string, again bool, err error) {
	var beside []string
	for _, name := range e.names {
		if _, noted := data.Delays[name]; noted && name != e.name() && e.letsBeside(name) {
			beside = append(beside, name)
		}
	}
	e.names = nil
	nodes, err := e.t.s.StatsBelow(ctx, e.q.Dir, beside)
	if err != nil {
		return nil, false, err
	}
	living := map[string]bool{e.name(): true}
	for i, n := range nodes {
		name := beside[i]
		living[name] = n.Err == nil && n.Stat.EphemeralOwner == data.Owners[name] || errors.Is(n.Err, zk.ErrNoAuth)
	}
	for name := range data.Delays {
		if !living[name] {
			lost = append(lost, name)
			if _, seen := until[name]; !seen {
				until[name], again = time.Time{}, true
			}
		}
	}
	return lost, again, nil
}

// letsBeside reports whether the contender that wrote a note may hold beside this entry, which is first in line.
func (e *entry) letsBeside(noted string) bool {
	n, _ := Parse(noted)
	return n.Kind == e.q.Kind && (n.Kind == Permits || n.Kind == Read)
}

// sleep waits for d, the rest of lost's delay.
func (e *entry) sleep(ctx context.Context, d time.Duration, lost string) error {
	select {
	case <-time.After(d):
		return nil
	case <-e.t.s.Done():
		return e.t.s.Err()
	case <-ctx.Done():
		return session.Waited(ctx, trusted.Caller{}, LineError{lostHolder(lost)})
	}
}

// deleteNoted deletes the znode and removes its note, both or neither.
func (e *entry) deleteNoted(ctx context.Context) error {
	for {
		var resps []zk.MultiResponse // none: nothing was answered, or the data were not read
		data, stat, err := e.q.readData(ctx, e.t.s)
		if err == nil {
			data.forget(e.name())
			resps, err = e.t.s.Multi(ctx,
				&zk.DeleteRequest{Path: e.node, Version: -1},
				&zk.SetDataRequest{Path: e.q.Dir, Data: data.encode(), Version: stat.Version})
		}
		switch {
		case err == nil, errors.Is(err, zk.ErrNoNode), len(resps) == 0 && !errors.Is(err, ErrConflict):
			return err
		case !errors.Is(err, zk.ErrBadVersion):
			// The note can't be removed: we lost access, or another client has overwritten it. The place goes all the same.
			return e.t.s.Delete(ctx, e.node, -1)
		}
	}
}
