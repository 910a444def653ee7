package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/internal/unsealed"
	"github.com/zklock/locker/tests/e2e/history"
	"github.com/zklock/locker/zklock"
)

// The register workloads read a value, wait, and replace it, without ever checking the hold's
// context: as a program does that was stopped between its check and its write. Every value is
// written once, so that a history shows which value each write has replaced.

// thinkTime, the wait, is long against the cycle of a lock, so that most stops hit a worker between
// its read and its write.
const thinkTime = 40 * time.Millisecond

// nextValue is a value that no other write has.
func (w *worker) nextValue() string {
	w.writes++
	return fmt.Sprintf("%d-%s-%d", w.conf.Client, loadName(w.load), w.writes)
}

func (w *worker) access(kind history.Kind, h *zklock.Hold) history.Op {
	return history.Op{
		Load: w.load, Kind: kind, Client: w.conf.Client, Worker: w.name,
		Paths: []string{w.path("register")},
		Token: int64(h.Token()),
	}
}

// useStore reads and writes a register of the store.
func (w *worker) useStore(h *zklock.Hold) {
	fenced := w.load == history.Fenced
	call := func(op *history.Op, a Access) (answer Answer) {
		a.Register, a.Fenced, a.Token = op.Paths[0], fenced, op.Token
		op.Call = history.Now()
		err := w.store.Call("Store.Do", a, &answer)
		op.Return = history.Now()
		switch {
		case err != nil:
			op.Outcome, op.Err = history.Unknown, err.Error()
		case answer.Refused:
			op.Outcome = history.Refused
		default:
			op.Outcome = history.OK
		}
		return answer
	}
	read := w.access(history.Read, h)
	read.Value = call(&read, Access{}).Value
	if read.Outcome != history.OK {
		return
	}
	if fenced { // without a token the write may be late
		w.emit(read)
	}
	prev := read.Value
	for range 1 + w.rng.IntN(2) {
		w.sleep(w.upTo(thinkTime))
		write := w.access(history.Write, h)
		write.Prev, write.Value = prev, w.nextValue()
		write.Seq = call(&write, Access{Write: true, Value: write.Value}).Seq
		w.emit(write)
		if write.Outcome != history.OK {
			return
		}
		prev = write.Value
	}
}

// useMulti reads a znode and writes it through Hold.Multi.
func (w *worker) useMulti(h *zklock.Hold) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*w.conf.Timeout)
	defer cancel()
	s, err := unsealed.Session(ctx, w.c)
	if err != nil {
		return // no connection: nothing was read
	}
	read := w.access(history.Read, h)
	read.Call = history.Now()
	data, _, err := s.Get(ctx, read.Paths[0])
	read.Return = history.Now()
	if err != nil {
		return
	}
	read.Value, read.Outcome = string(data), history.OK
	if h.Err() == nil { // a lost hold may have read an older value
		w.emit(read)
	}
	prev := read.Value
	for range 1 + w.rng.IntN(2) {
		w.sleep(w.upTo(thinkTime))
		write := w.access(history.Write, h)
		write.Prev, write.Value = prev, w.nextValue()
		write.Call = history.Now()
		_, err := h.Multi(ctx,
			session.OpSet{Path: write.Paths[0], Data: []byte(write.Value), Version: -1})
		write.Return = history.Now()
		switch {
		case err == nil:
			write.Outcome = history.OK
		case errors.Is(err, zklock.ErrUnknownOutcome):
			write.Outcome, write.Err = history.Unknown, err.Error()
		default:
			write.Outcome, write.Err = history.Refused, err.Error()
		}
		w.emit(write)
		if err != nil {
			return
		}
		prev = write.Value
	}
}
