package session

import (
	"context"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/session/internal/pipeline"
)

// Batch is a list of requests that travel together: back to back on one connection, in order, up to
// 256 in one round trip. The server carries them out in that order, but not as one transaction:
// other clients' requests may come in between, and one may fail while the next succeeds. A write
// that a busy server drops is sent again, behind the others. (For all or none see Multi.)
//
//	b := s.Batch()
//	made := b.Create("/jobs/job-", data, session.EphemeralSequential, acl)
//	jobs := b.List("/jobs") // the new one among them
//	if err := b.Do(ctx); err != nil {
//
// Each method adds a request and returns its Result, and has the contract of Session's method of
// the same name. A Batch is for one goroutine, and for one Do.
type Batch struct {
	s     *Session
	share func(*pipeline.Request) // see Grouped; if nil, none may share
	asks  []answerable

	// Room for asks and for their requests, if they are few.
	room        [2]answerable
	requestRoom [2]*pipeline.Request
}

// Batch returns an empty batch.
func (s *Session) Batch() *Batch { return &Batch{s: s} }

// Grouped is Batch for the packages of this module: the creates, deletes and multis of the batch
// may share a transaction with those of other such batches. They must come before the batch's
// reads, which see them, and are carried out in any order among themselves.
func (s *Session) Grouped() *Batch { return &Batch{s: s, share: (*pipeline.Request).Share} }

// Do sends the requests and waits for their replies, as long as ctx and the session last. A request
// that is refused before any I/O, for example for a bad path, is not sent; the others are. But if
// one is too long, or has no room for its ephemeral znodes, none is sent. Reads that lose their
// reply, and requests that were not sent, are sent again. The error of a write that loses its reply
// matches ErrUnknownOutcome; the requests behind it may have been carried out or not. Do returns
// the first Err of the results, or nil if everything was carried out.
func (b *Batch) Do(ctx context.Context) error {
	return b.s.do(ctx, b.requestRoom[:0], b.asks...)
}

// added adds a to b.
func added[T any](b *Batch, a *Result[T]) *Result[T] {
	if b.share != nil && a.r != nil {
		b.share(a.r)
	}
	if b.asks == nil {
		b.asks = b.room[:0]
	}
	b.asks = append(b.asks, a)
	return a
}

// Create makes a znode.
func (b *Batch) Create(path string, data []byte, mode Mode, acl []zk.ACL) *Result[Created] {
	return added(b, b.s.create(path, data, mode, acl))
}

// Delete removes a znode; version −1 means any.
func (b *Batch) Delete(path string, version int32) *Result[None] {
	return added(b, b.s.delete(path, version))
}

// Get reads a znode.
func (b *Batch) Get(path string) *Result[Data] { return added(b, b.s.get(path)) }

// List lists a znode's children. In a batch of Grouped its Stat may be missing: zero.
func (b *Batch) List(path string) *Result[Children] { return added(b, b.s.list(path, false)) }

// Exists reads a znode's Stat.
func (b *Batch) Exists(path string) *Result[zk.Stat] { return added(b, b.s.exists(path)) }

// Sync makes the reads behind it see what the leader had carried out: see Session.Sync.
func (b *Batch) Sync(path string) *Result[None] { return added(b, b.s.sync(path)) }

// Multi carries out several writes in one transaction: see Session.Multi.
func (b *Batch) Multi(ops ...Op) *Result[Transaction] { return added(b, b.s.multi(ops)) }
