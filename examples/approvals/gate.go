package main

import (
	"slices"
	"sync"
)

// gate guards every access to the database. It makes a freeze show the same in every run: while it is closed, an update
// stops at the worst point, after its last check of the lock and before its write.
//
// It also ensures that no transaction is open when the process is stopped. A stopped process's transaction keeps its
// locks: with SQLite no other instance could write at all then, and a row lock of PostgreSQL stays until the server
// closes the client's connection. That is a real danger of real pauses; the remedies are short transactions and the
// database's own time limits (idle_in_transaction_session_timeout), since a lock service can't help there.
type gate struct {
	mu      sync.Mutex // guards the fields below
	changed *sync.Cond // broadcast after every change
	armed   bool       // the next update to read closes the gate behind it
	closed  bool
	inside  int         // accesses to the database
	begun   int         // updates that have read
	late    []lateWrite // those of them that wait before their write
}

// lateWrite is an update that has made its last check of the lock.
type lateWrite struct {
	Key   string
	Node  string // its contender
	Token int64
	N     int64 // the number that it is about to write
}

func newGate() *gate {
	g := &gate{}
	g.changed = sync.NewCond(&g.mu)
	return g
}

// begin lets an update read; end is called when it is over.
func (g *gate) begin() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wait()
	g.begun++
	g.inside++
	g.closed = g.armed
	g.changed.Broadcast()
}

func (g *gate) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.begun--
	g.changed.Broadcast()
}

// write lets it write.
func (g *gate) write(w lateWrite) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		g.late = append(g.late, w)
		g.changed.Broadcast()
	}
	g.wait()
	g.inside++
}

// done records that a read or a write is over.
func (g *gate) done() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	g.changed.Broadcast()
}

// wait waits while the gate is closed. The parent process opens it again, or the end of standard input. g.mu is held.
func (g *gate) wait() {
	for g.closed {
		g.changed.Wait()
	}
}

// close closes the gate after the updates that have read, or, when there are none, makes the next one close it after
// its read. After its return no update that reads can write.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.armed, g.closed = true, g.begun > 0
}

// standing waits, after close, until every update that has read waits before its write, and at least one does, or until
// the gate is opened. It returns the writes.
func (g *gate) standing() []lateWrite {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.armed && (len(g.late) == 0 || len(g.late) < g.begun || g.inside > 0) {
		if g.begun == 0 && g.closed { // those that had read have ended without a write
			g.closed = false
			g.changed.Broadcast()
		}
		g.changed.Wait()
	}
	return slices.Clone(g.late)
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.armed, g.closed, g.late = false, false, nil
	g.changed.Broadcast()
}
