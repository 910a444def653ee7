package queue

import "github.com/zklock/locker/internal/session"

// What the tests of this package use of its unexported code; they have no other access to it.

// Sweeping reports whether the sweeper of s is at work.
func Sweeping(s *session.Session) bool {
	w := &sharedIn(s).sweeper
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.running
}
