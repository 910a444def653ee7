package recipe

import (
	"crypto/sha256"

	"github.com/zklock/locker/internal/trusted"
	"github.com/zklock/locker/session"
)

// shared is what the calls of one session have in common, for as long as the session lasts.
type shared struct {
	crowds    crowds
	heads     heads
	permitted permitted
	sweeper   sweeper
	toWatch   toWatch
}

func sharedIn(s *session.Session) *shared {
	return s.ForLocks(trusted.Caller{}).Attached(func() any {
		return &shared{
			crowds:    crowds{s: s, of: map[string]*crowd{}},
			heads:     heads{s: s, known: map[[sha256.Size]byte]*head{}},
			permitted: permitted{s: s, known: map[string]dirACL{}},
			sweeper:   sweeper{s: s, wake: make(chan struct{}, 1)},
			toWatch:   toWatch{s: s},
		}
	}).(*shared)
}
