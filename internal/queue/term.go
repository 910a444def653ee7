package queue

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/session"
)

// # What a leader writes
//
// The first in line of an election need not lead: its session may be over, or it may be about to
// step aside. And when it has gone, a candidate that has stepped aside for it has to know whether
// it has led (recipe/rank.go). So an election's ticket that holds writes twice or three times:
//
//   - It announces its term: it replaces its own data by Queue.TermData. Observers take nobody for
//     the leader who has not announced a term.
//   - It signs its term: it writes the directory's data as they are, so that only their Mzxid
//     changes. It does so when it has held for a session timeout, and in the transaction by which
//     it leaves.
//
// None of the writes delays the hold, since the first two are made in the background. If they are
// refused, the ticket holds all the same.
//
// To write the directory's data as they are, the ticket has to know them. It does if they are
// empty, as this library makes them: the Stat of the list by which it holds says so. Otherwise it
// reads them when it has held for a session timeout. A shorter term in such a directory is not
// signed. Each of these writes has the version that the ticket knows, so it overwrites nothing.

// term is what a ticket that leads knows of the directory's data. It is guarded by Ticket.mu.
type term struct {
	data    []byte // of the directory
	version int32  // of data
	known   bool   // whether data and version are known

	timer *time.Timer // fires when the ticket has held for a session timeout
}

// beginTermLocked announces the term of a ticket that has begun to hold, and has it signed when it
// has lasted for a session timeout. dir is the directory's Stat by which the ticket holds.
func (t *Ticket) beginTermLocked(dir dirStat) {
	t.s.Go(t.announceTerm)
	t.term = &term{version: dir.version, known: dir.dataLength == 0}
	t.term.timer = time.AfterFunc(t.s.Timeout(), func() { t.s.Go(t.signTerm) })
}

// announceTerm replaces the data that the ticket's znode was made with. If they have been replaced
// already, by an attempt whose reply was lost or by SetData, those are the newer ones.
func (t *Ticket) announceTerm(ctx context.Context) {
	e := t.entries[0]
	persist(ctx, func() error {
		_, err := t.s.Set(ctx, e.node, e.q.TermData, 0)
		if errors.Is(err, zk.ErrBadVersion) {
			return nil
		}
		return err
	})
}

// signTerm signs the term of a ticket that still holds.
func (t *Ticket) signTerm(ctx context.Context) {
	dir := t.entries[0].q.Dir
	persist(ctx, func() error {
		if !t.isGuarded() {
			return nil
		}
		data, stat, err := t.s.Get(ctx, dir)
		if err != nil {
			return err
		}
		stat, err = t.s.Set(ctx, dir, data, stat.Version)
		if err != nil {
			return err
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		t.term.data, t.term.version, t.term.known = data, stat.Version, true
		return nil
	})
}

// isGuarded reports whether the ticket holds, and has been guarded.
func (t *Ticket) isGuarded() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.life == guarded
}

// signature returns the operation that signs the entry's term, for the transaction by which its
// ticket leaves. It returns false if the directory's data are not known.
func (e *entry) signature() (session.OpSet, bool) {
	t := e.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.term == nil || !t.term.known {
		return session.OpSet{}, false
	}
	return session.OpSet{Path: e.q.Dir, Data: t.term.data, Version: t.term.version}, true
}

// checkTermACL returns an error if an election's access list would refuse its leader's writes.
func (t *Ticket) checkTermACL() error {
	for _, e := range t.entries {
		if !e.q.Ranked {
			continue
		}
		err := e.q.checkWrites("candidates need both, since a leader announces its term")
		if err != nil {
			return err
		}
	}
	return nil
}
