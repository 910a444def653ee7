package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/zklock/locker/zklock"
)

// board prints events as they happen: one line each, with the time since the beginning.
type board struct {
	recovered chan struct{} // closed when another worker holds the lock after the crash

	mu      sync.Mutex // guards the fields below
	out     io.Writer
	began   time.Time
	crash   time.Time // when the network was cut; zero before
	victim  string    // whose
	lost    time.Time // when the victim knew that the lock was lost
	resumed bool      // recovered is closed
}

func newBoard(out io.Writer) *board {
	return &board{out: out, began: time.Now(), recovered: make(chan struct{})}
}

// hooks are the hooks of a worker's client. They are called in the middle of its lock calls, and
// the board's mutex is held for the printing of a line only.
func (b *board) hooks(w *worker) zklock.Hooks {
	return zklock.Hooks{
		Queued: func(i zklock.LockInfo) {
			b.say(w.name, "waits: number %d in line, %s has the lock", i.Ahead+1, w.owner(i))
		},
		Acquired: func(i zklock.LockInfo) { b.acquired(w.name) },
		Lost: func(i zklock.LockInfo) {
			if errors.Is(i.Err, zklock.ErrLost) { // else the client was closed, after Ctrl-C
				b.lostBy(w.name, i.Err)
			}
		},
	}
}

// owner returns the name of the holder. It is in the data of its znode: JSON, with the owner that
// WithOwner set. A holder that has just released the lock has no znode any more.
func (w *worker) owner(i zklock.LockInfo) string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s, err := w.client.Session(ctx)
	if err != nil {
		return "another client"
	}
	data, _, err := s.Get(ctx, i.HolderNode)
	var id struct{ Owner string }
	if err != nil || json.Unmarshal(data, &id) != nil || id.Owner == "" {
		return "a client that is just leaving"
	}
	return id.Owner
}

// counted reports an increment under the lock.
func (b *board) counted(name string, from int, token zklock.Token) {
	b.say(name, "counter %d → %d under the lock, token %d", from, from+1, token)
}

// wrote reports an increment without the lock.
func (b *board) wrote(name string, from int) { b.say(name, "counter %d → %d", from, from+1) }

// crashed reports that a holder's network is about to be cut.
func (b *board) crashed(name string, token zklock.Token) {
	b.say(name,
		"CRASHES with the lock in hand, token %d, before its write: its network is cut, no Unlock, no Close", token)
	b.say(name, "its increment was not made; the others will make it, and the rest of its share")
	b.mu.Lock()
	defer b.mu.Unlock()
	b.crash, b.victim = time.Now(), name
}

// lostBy reports a hold that ended without a release.
func (b *board) lostBy(name string, cause error) {
	b.say(name, "is told by its own clock that the lock is lost: %v", cause)
	b.mu.Lock()
	defer b.mu.Unlock()
	if name == b.victim && b.lost.IsZero() {
		b.lost = time.Now()
	}
}

// acquired records the first holder after the crash.
func (b *board) acquired(name string) {
	b.mu.Lock()
	if b.crash.IsZero() || b.resumed {
		b.mu.Unlock()
		return
	}
	b.resumed = true
	close(b.recovered)
	now := time.Now()
	after, lost := now.Sub(b.crash), b.lost
	b.mu.Unlock()

	b.say(name, "RECOVERED: has the lock %v after the crash", after.Round(time.Millisecond))
	if !lost.IsZero() {
		b.say(name, "%s had known that it lost the lock %v before: at no time did both count on it",
			b.victim, now.Sub(lost).Round(time.Millisecond))
	}
}

func (b *board) say(name, format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fmt.Fprintf(b.out, "%6.3fs  %-10s  %s\n", time.Since(b.began).Seconds(), name,
		fmt.Sprintf(format, args...))
}
