package queue

import (
	"bytes"
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
// it has led (recipe/rank.go). So a ticket that leads makes three writes:
//
//   - It announces its term, at once: it replaces its own data by Queue.TermData. Observers take no
//     candidate for the leader before that.
//   - It signs its term, when it has held for a session timeout: it writes the directory's data as
//     they are, so that only their Mzxid changes.
//   - It signs its term again in the transaction by which it leaves, unless the term has failed.
//
// The first two are made in the background, so that no hold waits for them. If one is refused, the
// ticket holds all the same, and the log says what that means for others. If the signature of a
// release is refused, the znode is deleted without it.
//
// No signature overwrites data. Each has the version of the data that it writes again, and is in
// one transaction with a check or a deletion of the ticket's own znode. So the directory is the
// one whose data the ticket has read. A release signs only if the directory has no data, as this
// library makes it: others' data would have to be read, kept and sent again, however long they
// are.

// term is what a ticket that leads has to write. It is guarded by Ticket.mu.
type term struct {
	sign    *time.Timer // fires when the ticket has held for a session timeout; nil before it holds
	dataSet bool        // SetData was called: its data announce the term too
	failed  bool        // TermFailed was called: the release does not sign
}

// beginTermLocked announces the term of a ticket that has begun to hold, and signs it once it has
// lasted for a session timeout.
func (t *Ticket) beginTermLocked() {
	t.s.Go(t.announceTerm)
	t.term.sign = time.AfterFunc(t.s.Timeout(), func() { t.s.Go(t.signTerm) })
}

// TermFailed says that what the leader does has failed. Its release then does not show that it has
// led: a release of the program that fails soon after each start must not keep others from leading.
func (t *Ticket) TermFailed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.term.failed = true
}

// signsTerm reports whether the entry's release signs its term.
func (e *entry) signsTerm() bool {
	t := e.t
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.term.sign != nil && !t.term.failed && e.phase != onlyDeleted && e.dir.dataLength == 0
}

// signature returns the operation that signs the entry's term when it leaves.
func (e *entry) signature() session.Op {
	t := e.t
	t.mu.Lock()
	defer t.mu.Unlock()
	return session.OpSet{Path: e.q.Dir, Version: e.dir.version}
}

// announceTerm replaces the data that the ticket's znode was made with. If another client has
// replaced them since, announceTerm replaces those.
func (t *Ticket) announceTerm(ctx context.Context) {
	e := t.entries[0]
	version := int32(0)
	const refused = "this leader can't announce its term, so others do not see that it leads"
	t.persistTerm(ctx, refused, func() error {
		_, err := t.s.Set(ctx, e.node, e.q.TermData, version)
		if !errors.Is(err, zk.ErrBadVersion) {
			return err
		}
		data, stat, err := t.s.Get(ctx, e.node)
		if err != nil {
			return err
		}
		version = stat.Version
		if t.wasDataSet() || bytes.Equal(data, e.q.TermData) { // by SetData, or by a lost attempt
			return nil
		}
		return zk.ErrBadVersion
	})
}

// signTerm signs the term of a ticket that still holds.
func (t *Ticket) signTerm(ctx context.Context) {
	e := t.entries[0]
	const refused = "this leader may not write at the election's path, as candidates must: " +
		"their ranks may not decide who leads next"
	t.persistTerm(ctx, refused, func() error {
		data, stat, err := t.s.Get(ctx, e.q.Dir)
		if err != nil {
			return err
		}
		_, err = t.s.Multi(ctx,
			session.OpCheck{Path: e.node, Version: -1},
			session.OpSet{Path: e.q.Dir, Data: data, Version: stat.Version})
		if err == nil {
			t.noteSigned(stat.Version+1, stat.DataLength)
		}
		return err
	})
}

// noteSigned notes what signTerm has written, for the signature of the release.
func (t *Ticket) noteSigned(version, dataLength int32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	dir := &t.entries[0].dir
	dir.version, dir.dataLength = version, dataLength
}

// persistTerm calls write until it succeeds, or the session is over. If a server refuses it for
// good, persistTerm logs that, unless the znode is gone, and with it the term.
func (t *Ticket) persistTerm(ctx context.Context, refused string, write func() error) {
	var last error
	persist(ctx, func() error {
		last = write()
		return last
	})
	if log := t.entries[0].q.Log; log != nil && final(last) && !errors.Is(last, zk.ErrNoNode) {
		log.Warn("zklock: "+refused, "node", t.entries[0].node, "error", last)
	}
}

// noteDataSet notes that SetData is about to replace the data.
func (t *Ticket) noteDataSet() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.term.dataSet = true
}

// wasDataSet reports whether SetData has been called.
func (t *Ticket) wasDataSet() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.term.dataSet
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
