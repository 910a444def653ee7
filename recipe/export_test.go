package recipe

import "github.com/zklock/locker/session"

// The only door for the tests of this package to its inside.

// NewID is newID.
func NewID() string { return newID() }

// Shares and Blocks are Kind's.
func (k Kind) Shares(other Kind) bool { return k.shares(other) }
func (k Kind) Blocks(ahead Kind) bool { return k.blocks(ahead) }

// Sweepers returns how many sweepers are at work.
func Sweepers() int {
	sweepers.mu.Lock()
	defer sweepers.mu.Unlock()
	return len(sweepers.of)
}

// Sweep has znodes deleted in the background.
func Sweep(s *session.Session, znodes ...string) { sweepLater(s, leftovers{znodes: znodes}) }
