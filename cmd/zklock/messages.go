package main

import (
	"bytes"
	"io"
	"sync/atomic"
	"time"
)

const (
	stall   = 100 * time.Millisecond // how long Write waits for the write to standard error
	parting = time.Second            // how long zklock waits for the last writes when it ends
	backlog = 1000                   // how many writes are kept meanwhile; more are lost
)

// messages writes to standard error. A write there may block for a long time: nobody reads the
// pipe, or the terminal got Ctrl-S. Meanwhile zklock must supervise its lock and its command. So
// after one stall a Write no longer waits, until standard error takes writes again.
type messages struct {
	queue chan message
	stuck atomic.Bool // a Write has waited for stall, and no write has ended since
}

type message struct {
	text    []byte
	written chan struct{} // closed when the text was written
}

func newMessages(out io.Writer) *messages {
	m := &messages{queue: make(chan message, backlog)}
	go func() { // ends with the process: nothing ends a blocked write
		for next := range m.queue {
			_, _ = out.Write(next.text) // there is no other place to report an error
			m.stuck.Store(false)
			close(next.written)
		}
	}()
	return m
}

func (m *messages) Write(p []byte) (int, error) {
	written := m.put(p)
	if !m.stuck.Load() {
		m.stuck.Store(!within(stall, written))
	}
	return len(p), nil
}

// flush waits until the writes before it have ended, but no longer than parting.
func (m *messages) flush() { within(parting, m.put(nil)) }

// put queues p. It returns a channel that is closed when p has been written, or nil if p is lost
// because the queue is full.
func (m *messages) put(p []byte) <-chan struct{} {
	next := message{bytes.Clone(p), make(chan struct{})}
	select {
	case m.queue <- next:
		return next.written
	default:
		return nil
	}
}

// within reports whether c is closed in time.
func within(limit time.Duration, c <-chan struct{}) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-c:
		return true
	case <-timer.C:
		return false
	}
}
