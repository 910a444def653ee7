package simulation_test

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/zklock/locker/zktest/fault"
)

// chaos causes random faults, and repairs each of them after a while.
type chaos struct {
	w     *world
	rnd   *rand.Rand
	until []repair
}

// repair ends a fault.
type repair struct {
	due  time.Duration
	name string
	mend func()
}

func newChaos(w *world) *chaos { return &chaos{w: w, rnd: w.rand(1)} }

// run causes faults until ctx ends, and then repairs all of them.
func (c *chaos) run(ctx context.Context) {
	for pause(ctx, c.span(50*time.Millisecond, 1500*time.Millisecond), remChaos) {
		c.mend(c.w.now())
		if len(c.until) < 4 {
			c.strike()
		}
		if c.w.busy {
			c.prune()
		}
	}
	c.mend(1<<62 - 1)
}

// prune deletes the empty directories, so that the server refuses the transaction with the next
// create there.
func (c *chaos) prune() {
	for i, path := range c.w.paths {
		if c.w.fam[i] == famMutex && len(c.w.srv.Children(path)) == 0 &&
			c.w.srv.Delete(path) == nil {
			c.w.note("fault", "%s is empty, and is deleted", path)
		}
	}
}

func (c *chaos) span(lo, hi time.Duration) time.Duration { return lo + upTo(c.rnd, hi-lo) }

// mend ends the faults that are due.
func (c *chaos) mend(now time.Duration) {
	rest := c.until[:0]
	for _, r := range c.until {
		if r.due > now {
			rest = append(rest, r)
			continue
		}
		c.w.note("fault", "over: %s", r.name)
		r.mend()
	}
	c.until = rest
}

// duration draws how long a fault lasts: usually shorter than a client notices, sometimes longer
// than a session.
func (c *chaos) duration() time.Duration {
	if c.rnd.IntN(4) == 0 {
		return c.span(4*time.Second, maxTimeout+4*time.Second)
	}
	return c.span(50*time.Millisecond, 3*time.Second)
}

func (c *chaos) begin(name string, mend func()) {
	d := c.duration()
	c.w.note("fault", "%s, for %v", name, d)
	c.until = append(c.until, repair{c.w.now() + d, name, mend})
}

// inject begins a fault of the server.
func (c *chaos) inject(name string, f fault.Fault) {
	in := c.w.srv.Inject(f)
	c.begin(name, in.Remove)
}

// once injects a fault of one message, and has hits count it.
func (c *chaos) once(what string, op fault.Op, f fault.Fault) {
	c.w.note("fault", "%s the next %v", what, op)
	c.w.once = append(c.w.once, aimed{aim{what, op}, c.w.srv.Inject(f.Op(op).Once())})
}

// struck are the operations that faults hit.
var struck = []fault.Op{fault.OpCreate, fault.OpDelete, fault.OpMulti, fault.OpGetChildren2,
	fault.OpExists,
	fault.OpSync, fault.OpSetData, fault.OpGetData, fault.OpConnect, fault.OpNotify,
	fault.OpSetWatches, fault.OpMultiRead, fault.OpRemoveWatches}

// dropBeforeWatches is the first pick of the fault that drops connections, and again before their
// watches are set.
const dropBeforeWatches = 24

// strike begins one fault.
func (c *chaos) strike() {
	w := c.w
	sessions := w.srv.Sessions()
	if len(sessions) == 0 {
		return
	}
	victim := sessions[c.rnd.IntN(len(sessions))]
	who := w.oracle.owner(victim.ID)
	member := c.rnd.IntN(len(w.members))
	m := w.members[member]
	op := struck[c.rnd.IntN(len(struck))]
	pick := c.rnd.IntN(100)
	if w.patient && c.rnd.IntN(4) == 0 {
		// In these seeds no later event makes up for one that was lost with a watch.
		pick = dropBeforeWatches
	}
	switch { // a pick whose condition does not hold falls to the next case
	case pick < 8:
		c.inject("cut "+who, fault.Freeze().Session(victim.ID))
	case pick < 15:
		c.inject("one direction is cut: no replies to "+who,
			fault.FreezeReplies().Session(victim.ID))
	case pick < 22:
		c.inject("one direction is cut: no requests from "+who,
			fault.FreezeRequests().Session(victim.ID))
	case pick < dropBeforeWatches:
		w.note("fault", "member %d drops its connections", member)
		m.DropConnections()
	case pick < 27:
		w.note("fault",
			"member %d drops its connections, and again before it has set their watches", member)
		held := w.srv.Inject(fault.Hold().Op(fault.OpSetWatches))
		m.DropConnections()
		c.begin("watches are not set", func() {
			m.DropConnections()
			held.Remove()
		})
	case pick < 41:
		c.once("the connection ends instead of the reply to", op,
			fault.CloseAfter().After(c.rnd.IntN(3)))
	case pick < 49 && op != fault.OpNotify:
		c.once("the connection ends instead of", op, fault.CloseBefore().After(c.rnd.IntN(3)))
	case pick < 52:
		c.once("the reply is truncated to", op, fault.Truncate(c.rnd.IntN(40)))
	case pick < 55:
		c.once("the reply is late to", op, fault.DelayReply(c.duration()))
	case pick < 60 && w.garbles && op != fault.OpConnect:
		c.once("the reply alone is lost to", op, fault.DropReply())
	case pick < 63 && w.garbles && op != fault.OpNotify && op != fault.OpConnect:
		c.once("lost alone is", op, fault.DropRequest())
	case pick < 67:
		m.Down()
		c.begin("member is down", m.Up)
	case pick < 75:
		n := 1 + c.rnd.IntN(5)
		m.Lag(n)
		c.begin("member lags", func() { m.Lag(0) })
	case pick < 82:
		m.CutOff()
		c.begin("member is cut off from the leader", m.Heal)
	case pick < 84:
		c.inject("the servers refuse connections", fault.Refuse())
	case pick < 88:
		w.note("fault", "the session of %s is ended by force", who)
		w.oracle.expire(victim)
	case pick < 96:
		w.oracle.remove(w.paths[c.rnd.IntN(len(w.paths))], c.rnd)
	default:
		w.oracle.removeAll(w.paths[c.rnd.IntN(len(w.paths))])
	}
}
