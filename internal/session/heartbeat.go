package session

import (
	"fmt"
	"time"

	"github.com/zklock/locker/internal/session/internal/link"
	"github.com/zklock/locker/internal/session/internal/pipeline"
)

// A session has one heartbeat, however many locks it holds. It gives up a conn whose server has owed an answer for too long
// (Keeper.Patience), or on which the lease can't be confirmed in time (Keeper.NeedsNewConn). It sends pings, which cost the leader nothing,
// and while the session is retained the writes that confirm the lease (retain.go: beatLocked; Keeper.BeatDue).

// Beat does what is due on c, which is open, and returns the time until more is due. Conn.run calls it then.
func (c *connection) Beat() time.Duration {
	s := c.s
	s.mu.Lock()
	now := s.clock.Now()
	wait, every := s.lease.Intervals()
	if c.beatDueLocked(now) <= 0 {
		c.Enqueue(c.beatLocked(now))
	}
	next, renew := c.beatDueLocked(now), s.lease.NeedsNewConn(now, c.upAt, c.upAt.Sub(c.began))
	s.mu.Unlock()
	unsent, unheard := c.Quiet(now)
	limit := c.Patience()
	switch {
	case renew:
		c.Fail(errThin)
	case unheard >= limit:
		c.Fail(fmt.Errorf("%w within %v", link.ErrSilent, limit))
	case unsent >= every: // also while a reply is due: the server has to hear of us, however long the reply takes
		c.Enqueue(pipeline.Ping())
		unsent = 0
	}
	return min(wait, limit-unheard, max(next, 0), every-unsent) + time.Millisecond
}

func (c *connection) Patience() time.Duration {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.s.lease.Patience()
}
