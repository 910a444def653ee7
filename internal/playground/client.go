package playground

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"time"

	"github.com/zklock/locker/internal/timeline"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// client is one of the clients that share the lock. It may be restarted after it was killed, as another process.
type client struct {
	s     *Stage
	name  string
	home  *server   // its first server; a client that trusts pings would stay there
	knows []*server // the servers that it may connect to
	p     *process  // guarded by Stage.mu
	drawn bool      // its znode has a watcher; guarded by Stage.mu
}

// process is one run of a client. Its fields are guarded by Stage.mu.
type process struct {
	zk       *zklock.Client
	link     link
	freeze   *zktest.Injection // while the link is down
	opened   chan struct{}     // closed when a link that is down comes up again
	asked    bool              // a call waits for the lock, or holds it
	hold     *zklock.Hold      // nil before it has the lock, and after the call has learned that the lock is lost
	believes bool              // whether it acts as the holder, as of the referee's last check
	ended    *zklock.Hold      // the latest hold that has ended, for a late Unlock
	unlocks  int               // calls of Unlock that have not returned
	idle     time.Time         // since when there has been no call and no hold; zero: there is one, or the link is down
	searched bool              // the referee has looked for znodes of it since then
	slip     bool              // it was stopped between checking its context and writing
	next     time.Time         // its next write
	writes   int
	last     string // the cause of its last loss
}

// link is the state of a process, or of its link to the servers.
type link string

const (
	up      link = ""
	cut     link = "cut off"
	stopped link = "stopped"
	dead    link = "dead"
)

// start opens a process of the client. It does not wait for its session.
func (s *Stage) start(c *client) error {
	p := &process{}
	var addrs []string
	for _, m := range c.knows {
		addrs = append(addrs, m.Addr())
	}
	zk, err := zklock.Dial(s.ctx, strings.Join(addrs, ","), zklock.WithDialer(
		func(network, addr string, timeout time.Duration) (net.Conn, error) {
			return s.dial(p, network, addr, timeout)
		}))
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p.zk, c.p = zk, p
	s.processes = append(s.processes, p)
	return nil
}

// dial is a process's dialer: over a link that is down no message ever arrives.
func (s *Stage) dial(p *process, network, addr string, timeout time.Duration) (net.Conn, error) {
	s.mu.Lock()
	down, opened := p.link != up, p.opened
	s.mu.Unlock()
	if down {
		late := time.NewTimer(timeout)
		defer late.Stop()
		select {
		case <-opened:
		case <-late.C:
			return nil, &net.OpError{Op: "dial", Net: network, Err: os.ErrDeadlineExceeded}
		}
	}
	return s.srv.Dial(network, addr, timeout)
}

// breakLocked takes a process's link down.
func (s *Stage) breakLocked(p *process, why link) {
	if p.link == up {
		p.opened = make(chan struct{})
		p.freeze = s.srv.Inject(zktest.Freeze().Session(p.zk.Status().Session.ID))
	}
	p.link = why
}

// thawLocked brings the link up again.
func (p *process) thawLocked() {
	if p.link != up {
		p.link = up
		close(p.opened)
		p.freeze.Remove()
	}
}

// lock acquires the lock, and draws the wait, the hold, its end, and the znode. It returns when the lock is held.
func (s *Stage) lock(c *client) (*zklock.Hold, error) {
	s.mu.Lock()
	p := c.p
	if p.asked || p.link == dead {
		s.mu.Unlock()
		return nil, nil
	}
	p.asked, p.last = true, ""
	watched := c.drawn
	c.drawn = true
	s.mu.Unlock()
	s.picture.Begin(c.name, timeline.Waits)
	if !watched {
		s.begin(func() error { s.watchZnode(c); return nil })
	}
	h, err := p.zk.Mutex(path, zklock.WithOwner(c.name)).Lock(s.ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.p != p || p.link == dead {
		return nil, nil // the process that called is dead
	}
	s.picture.End(c.name, timeline.Waits)
	if err != nil {
		p.asked = false
		return nil, err
	}
	p.hold = h
	s.judge.heldLocked(h)
	s.believeLocked(c)
	s.begin(func() error { s.watchHold(c, p, h); return nil })
	return h, nil
}

// unlock releases a hold of the process. It returns when that is done.
func (s *Stage) unlock(p *process, h *zklock.Hold) error {
	s.mu.Lock()
	p.unlocks++
	s.mu.Unlock()
	err := h.Unlock(s.ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	p.unlocks--
	return err
}

// watchZnode draws the client's znode for as long as there is one.
func (s *Stage) watchZnode(c *client) {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		c.drawn = false
	}()
	if s.srv.Await(s.ctx, func() bool { return s.contends(c.name) }) != nil {
		return // the stage was closed
	}
	s.picture.Begin(c.name, timeline.Znode)
	if s.srv.Await(s.ctx, func() bool { return !s.contends(c.name) }) != nil {
		return
	}
	s.picture.End(c.name, timeline.Znode)
	s.picture.Tell(c.name, "%s's znode is deleted", c.name)
}

// watchHold draws a hold's end.
func (s *Stage) watchHold(c *client, p *process, h *zklock.Hold) {
	<-h.Context().Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	cause := context.Cause(h.Context())
	switch {
	case s.ctx.Err() != nil || p.link == dead || errors.Is(cause, zklock.ErrUnlocked):
	case errors.Is(cause, zklock.ErrLeaseOver) && (p.link == stopped || s.rules.NoLeaseClock):
		s.picture.Tell(c.name, "%s's lease is over", c.name)
	case errors.Is(cause, zklock.ErrLeaseOver):
		s.picture.Tell(c.name, "%s's own clock ends its context: lease over", c.name)
	default:
		s.picture.Tell(c.name, "%s's context ends: %s", c.name, why(cause))
	}
	s.believeLocked(c)
}

// why is the first line of a hold's cause.
func why(cause error) string {
	switch {
	case errors.Is(cause, zklock.ErrUnlocked):
		return "released"
	case errors.Is(cause, zklock.ErrLeaseOver):
		return "lease over"
	case errors.Is(cause, zklock.ErrSessionExpired):
		return "session expired"
	case errors.Is(cause, zklock.ErrNodeDeleted):
		return "znode deleted"
	}
	first, _, _ := strings.Cut(cause.Error(), "\n")
	return first
}

// holdsOnLocked reports whether the client's process acts as the lock's holder. A stopped or dead process does not. With a
// lease clock the hold's context decides. Without one it acts until the ensemble can report the loss: the link is up, and
// its server is not cut off.
func (c *client) holdsOnLocked() bool {
	p := c.p
	if p.hold == nil || p.link == dead || p.link == stopped {
		return false
	}
	err := p.hold.Err()
	if err == nil || !c.s.rules.NoLeaseClock || errors.Is(err, zklock.ErrUnlocked) {
		return err == nil
	}
	return p.link == cut || c.home.cut
}

// believeLocked records when the client begins or ceases to act as the holder.
func (s *Stage) believeLocked(c *client) {
	p, now := c.p, c.holdsOnLocked()
	switch {
	case now && !p.believes:
		s.picture.Begin(c.name, timeline.Holds)
		if p.next.IsZero() {
			s.picture.Tell(c.name, "%s holds", c.name)
			p.next = time.Now().Add(writesEvery)
		}
	case p.believes && !now:
		s.picture.End(c.name, timeline.Holds)
	}
	p.believes = now
	if p.hold == nil || now || p.link == stopped || p.link == dead {
		return
	}
	err := p.hold.Err()
	if s.rules.NoLeaseClock && !errors.Is(err, zklock.ErrUnlocked) {
		s.picture.Tell(c.name, "%s learns that it has lost the lock", c.name)
	}
	p.last, p.ended, p.hold, p.asked, p.next = why(err), p.hold, nil, false, time.Time{}
}
