package main

import (
	"bytes"
	"io"
	"sync/atomic"
	"time"
)

const (
	stall   = 100 * time.Millisecond // for how long a write to standard error is waited for
	parting = time.Second            // and those that are left when zklock ends
	backlog = 1000                   // writes that are kept meanwhile; more are lost
)

// messages is standard error, which may not take a write for a long time: a pipe that nobody reads, a terminal after Ctrl-S.
// Meanwhile a lock has to be watched, and a command to be ended. So after one stall a Write does not wait any more until
// the writes go on.
type messages struct {
	queue chan message
	stuck atomic.Bool
}

type message struct {
	text    []byte
	written chan struct{}
}

func newMessages(out io.Writer) *messages {
	m := &messages{queue: make(chan message, backlog)}
	go func() { // ends with the process: nothing ends a blocked write
		for next := range m.queue {
			_, _ = out.Write(next.text) // there is nowhere else to report an error
			m.stuck.Store(false)
			close(next.written)
		}
	}()
	return m
}

func (m *messages) Write(p []byte) (int, error) {
	if written := m.put(p); !m.stuck.Load() {
		m.stuck.Store(!within(stall, written))
	}
	return len(p), nil
}

// flush waits for the writes before it.
func (m *messages) flush() { within(parting, m.put(nil)) }

// put returns a channel that is closed when p has been written, or nil if it is lost.
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
