package playground

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/zklock/locker/internal/timeline"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// Script is a story. One without steps is an empty stage, on which the user acts.
type Script struct {
	Name      string // of its picture's file
	Title     string
	Step      time.Duration // of the picture: see timeline.New
	Clients   string        // a letter for each
	More      []string      // lanes besides the clients'
	OneServer bool          // each client knows only one
	First     int           // the server of the first client: 0 leads
	steps     []step        // none: the user acts
}

func (sc Script) lanes() []string { return append(strings.Split(sc.Clients, ""), sc.More...) }

// Acts reports whether the user acts, because the script has no steps.
func (sc Script) Acts() bool { return sc.steps == nil }

// Play plays the script's steps, one after the other.
func (sc Script) Play(s *Stage) error { return inTurn(sc.steps...)(s) }

const coarse = 100 * time.Millisecond

// Free is the stage for a user who acts alone.
var Free = Script{Name: "free", Title: "Five clients and a lock", Step: travels, Clients: "ABCDE", More: []string{"servers", "store"}}

// Scripts are the stories of docs/when-things-fail.md, in its order.
var Scripts = []Script{
	{Name: "crash", Title: "A holder crashes", Step: coarse, Clients: "AB", OneServer: true, steps: []step{
		lock("A"), rest(1500 * time.Millisecond), kill("A"), turn("B", time.Second)}},
	{Name: "cut-holder", Title: "A holder is cut off, and lives", Step: coarse, Clients: "AB", OneServer: true, steps: []step{
		lock("A"), rest(1500 * time.Millisecond), cutOff("A"), turn("B", 2*time.Second),
		rest(500 * time.Millisecond), mend("A"), late("A"), rest(500 * time.Millisecond)}},
	{Name: "cut-follower", Title: "A holder's server is cut off from its leader", Step: coarse, Clients: "AB", More: []string{"server"}, OneServer: true, First: 1, steps: []step{
		lock("A"), rest(1500 * time.Millisecond), leave("server 2", "server"), turn("B", 2*time.Second), heal("server 2", "server")}},
	{Name: "deposed-leader", Title: "A holder's server was the leader, and is deposed", Step: coarse, Clients: "AB", More: []string{"leader"}, OneServer: true, steps: []step{
		lock("A"), rest(1500 * time.Millisecond), leave("server 1", "leader"), rest(200 * time.Millisecond), check("A"), turn("B", 2*time.Second),
		heal("server 1", "leader"), rest(500 * time.Millisecond)}},
	{Name: "stopped-process", Title: "A process is stopped, and wakes up", Step: coarse, Clients: "AB", More: []string{"with token", "without"}, OneServer: true, steps: []step{
		lock("A"), rest(1100 * time.Millisecond), stop("A"), lock("B"), rest(3 * time.Second), resume("A"), rest(time.Second), unlock("B")}},
	{Name: "lost-reply", Title: "The reply to a create is lost", Step: 20 * time.Millisecond, Clients: "A", OneServer: true, steps: []step{
		loseReply("A"), lock("A"), found("A"), rest(200 * time.Millisecond), unlock("A")}},
	{Name: "hand-over", Title: "Three in line: one release wakes one", Step: travels, Clients: "ABC", OneServer: true, steps: []step{
		lock("A"), together(
			turn("B", 50*time.Millisecond),
			inTurn(rest(20*time.Millisecond), turn("C", 50*time.Millisecond)),
			inTurn(rest(80*time.Millisecond), unlock("A")))}},
}

// Find returns the script of that name.
func Find(name string) (Script, bool) {
	i := slices.IndexFunc(Scripts, func(sc Script) bool { return sc.Name == name })
	if i < 0 {
		return Free, name == Free.Name
	}
	return Scripts[i], true
}

// step is an event in a story, or an action of the user. It returns when it is done.
type step func(s *Stage) error

// inTurn is steps one after the other.
func inTurn(steps ...step) step {
	return func(s *Stage) error {
		for _, do := range steps {
			if err := do(s); err != nil {
				return err
			}
		}
		return nil
	}
}

// together is steps at the same time.
func together(steps ...step) step {
	return func(s *Stage) error {
		errs := make([]error, len(steps))
		var all sync.WaitGroup
		for i, do := range steps {
			all.Go(func() { errs[i] = do(s) })
		}
		all.Wait()
		return errors.Join(errs...)
	}
}

// rest lets time pass.
func rest(d time.Duration) step { return func(*Stage) error { time.Sleep(d); return nil } }

// turn locks, works, and unlocks.
func turn(name string, work time.Duration) step { return inTurn(lock(name), rest(work), unlock(name)) }

// with finds the client that a step is about.
func with(name string, do func(s *Stage, c *client) error) step {
	return func(s *Stage) error {
		c, err := s.client(name)
		if err != nil {
			return err
		}
		return do(s, c)
	}
}

func lock(name string) step {
	return with(name, func(s *Stage, c *client) error { _, err := s.lock(c); return err })
}

// unlock releases what the client holds, if anything.
func unlock(name string) step {
	return with(name, func(s *Stage, c *client) error {
		s.mu.Lock()
		p := c.p
		h := p.hold
		s.mu.Unlock()
		if h == nil {
			return nil
		}
		s.picture.Tell(c.name, "%s unlocks", c.name)
		if err := s.unlock(p, h); err != nil && !errors.Is(err, zklock.ErrLost) {
			return err
		}
		return nil
	})
}

// late unlocks a hold that was lost.
func late(name string) step {
	return with(name, func(s *Stage, c *client) error {
		s.mu.Lock()
		p := c.p
		h := p.ended
		if h == nil {
			h = p.hold // without a lease clock it does not know yet that the lock is lost
		}
		s.mu.Unlock()
		if err := s.unlock(p, h); !errors.Is(err, zklock.ErrLost) {
			return fmt.Errorf("playground: Unlock of a lost hold: %w", err)
		}
		s.picture.Tell(c.name, "%s is connected again; its Unlock returns ErrLost", c.name)
		return nil
	})
}

// check makes a holder call Check, which its server, a deposed leader, answers.
func check(name string) step {
	return with(name, func(s *Stage, c *client) error {
		s.mu.Lock()
		h := c.p.hold
		s.mu.Unlock()
		if err := h.Check(s.ctx); err != nil {
			return err
		}
		s.picture.Tell(c.name, "%s's Check (sync and read at this server) succeeds", c.name)
		return nil
	})
}

// down takes a client's link down.
func down(name string, why link, text string) step {
	return with(name, func(s *Stage, c *client) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if c.p.link == dead || c.p.link == why {
			return nil
		}
		s.believeLocked(c)
		held := c.p.believes
		s.breakLocked(c.p, why)
		s.picture.Tell(c.name, text, c.name)
		if why == stopped {
			c.p.slip = held
			s.picture.Begin(c.name, timeline.Stopped)
		} else {
			s.picture.End(c.name, timeline.Stopped)
			s.picture.Begin(c.name, timeline.Trouble)
		}
		if why == dead {
			s.picture.End(c.name, timeline.Waits)
		}
		s.believeLocked(c)
		return nil
	})
}

func cutOff(name string) step { return down(name, cut, "%s's link to the servers is cut") }
func kill(name string) step   { return down(name, dead, "%s's machine fails") }
func stop(name string) step {
	return down(name, stopped, "%s's process is stopped, just before its next write")
}

// mend ends cutOff.
func mend(name string) step {
	return with(name, func(s *Stage, c *client) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if c.p.link == cut {
			c.p.thawLocked()
			s.picture.End(c.name, timeline.Trouble)
		}
		return nil
	})
}

// resume ends stop: a process that was about to write does so, and checks its context only afterwards.
func resume(name string) step {
	return with(name, func(s *Stage, c *client) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		p := c.p
		if p.link != stopped {
			return nil
		}
		s.picture.End(c.name, timeline.Stopped)
		p.thawLocked()
		if p.slip {
			p.slip = false
			s.picture.Tell(c.name, "%s resumes, and writes before it checks its context", c.name)
			s.writeLocked(c, p.hold)
		}
		s.believeLocked(c)
		return nil
	})
}

// restart starts a new process of a client that was killed.
func restart(name string) step {
	return with(name, func(s *Stage, c *client) error {
		s.mu.Lock()
		gone := c.p.link == dead
		s.mu.Unlock()
		if !gone {
			return nil
		}
		s.picture.End(c.name, timeline.Trouble)
		s.picture.Tell(c.name, "%s is restarted", c.name)
		return s.start(c)
	})
}

// expire ends the client's session as an administrator would.
func expire(name string) step {
	return with(name, func(s *Stage, c *client) error {
		s.picture.Tell(c.name, "an administrator ends %s's session", c.name)
		s.srv.Expire(c.p.zk.Status().Session.ID)
		return nil
	})
}

// loseReply breaks the connection before the reply to the next create.
func loseReply(name string) step {
	return with(name, func(s *Stage, c *client) error {
		lost := s.srv.Inject(zktest.CloseAfter().Op(zktest.OpCreate, zktest.OpCreate2).Once())
		s.begin(func() error {
			if err := lost.Wait(s.ctx, 1); err != nil {
				return err
			}
			s.picture.Tell(c.name, "the connection breaks before the reply to the create")
			s.picture.Begin(c.name, timeline.Trouble)
			return nil
		})
		return nil
	})
}

// found draws the result of the client's search for its znode after a lost reply.
func found(name string) step {
	return with(name, func(s *Stage, c *client) error {
		s.picture.End(c.name, timeline.Trouble)
		s.picture.Tell(c.name, "on the next connection %s finds its znode by the id in the name; znodes in the queue: %d", c.name, len(s.srv.Children(path)))
		return nil
	})
}

// leave cuts a server off from the others. If it leads, they elect another leader.
func leave(name, lane string) step {
	return func(s *Stage) error {
		m, err := s.server(name)
		if err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if slices.ContainsFunc(s.servers, func(m *server) bool { return m.cut }) {
			return nil // a majority has to stay
		}
		m.cut = true
		if !m.leads {
			m.CutOff()
			s.picture.Tell(lane, "%scut off from the leader; it still answers pings of %s", s.named(lane, m), s.clientsOf(m))
		} else {
			m.Depose()
			m.leads = false
			for _, other := range s.servers {
				if other != m {
					other.leads = true
					break
				}
			}
			s.picture.Tell(lane, "%sdeposed: the other servers elect a leader; this one still answers pings of %s", s.named(lane, m), s.clientsOf(m))
		}
		s.picture.Begin(lane, timeline.Trouble)
		return nil
	}
}

// heal ends leave.
func heal(name, lane string) step {
	return func(s *Stage) error {
		m, err := s.server(name)
		if err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if !m.cut {
			return nil
		}
		m.cut = false
		m.Heal()
		s.picture.End(lane, timeline.Trouble)
		s.picture.Tell(lane, "%sconnected to the other servers again", s.named(lane, m))
		return nil
	}
}

// named prefixes a text with the server's name in a lane that several servers share.
func (s *Stage) named(lane string, m *server) string {
	if lane == "servers" {
		return m.name + ": "
	}
	return ""
}

// clientsOf names the clients that are connected to a server.
func (s *Stage) clientsOf(m *server) string {
	var names []string
	for _, c := range s.clients {
		if c.p.zk.Status().Session.Server == m.Addr() {
			names = append(names, c.name)
		}
	}
	if names == nil {
		return "no client"
	}
	return strings.Join(names, " and ")
}

// Actions are the user's actions on a client, by name.
var Actions = map[string]func(name string) step{
	"lock": lock, "unlock": unlock, "cut": cutOff, "mend": mend, "kill": kill, "restart": restart,
	"stop": stop, "resume": resume, "expire": expire,
	"leave": func(name string) step { return leave(name, "servers") },
	"heal":  func(name string) step { return heal(name, "servers") },
}

// Act begins an action of the user. An error of the action is in the next State.
func (s *Stage) Act(what, who string) error {
	do, ok := Actions[what]
	if !ok {
		return fmt.Errorf("playground: there is no action %q", what)
	}
	s.begin(func() error { return do(who)(s) })
	return nil
}
