package simulation_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/zklock"
)

// oracle checks the guarantees. It reads the leader's tree, without a delay, and the holds as their
// holders see them, and compares the two after every event in the server and every return of a
// call.
//
// Removal by force is the documented exception, and is noted for each znode: when an administrator
// has deleted the znode of a hold, or ended its session, another client may hold that path at the
// same time, until the holder is notified. The guarantees of tokens and Multi apply even then.
type oracle struct {
	w *world

	mu      sync.Mutex       // guards what follows
	names   map[int64]string // clients, by session
	forced  map[string]bool  // znodes that were removed by force, or may be, by a Break under way
	waited  map[string]int64 // those of them that waited when they were removed, and their czxids
	expired map[int64]bool   // sessions that were ended by force
	held    []*acquisition   // some of them may have ended
	working []*acquisition   // those whose work may still run, though they may have been lost
	tokens  map[string]zklock.Token
	writers map[string]zklock.Token
	sizes   map[string][]sized
	written map[string]int64 // the latest token in the register of a path
	done    map[jobKey]bool  // jobs that are known to be recorded
	called  map[jobKey]int   // how often their functions were called

	last map[string]*acquisition // the one with the greatest token of a path
	zxid int64
}

// sized is the size that a semaphore has had since an instant.
type sized struct {
	from time.Duration
	size int
}

// acquisition is a lock that a player acquired. Re-entry gives it several holds.
type acquisition struct {
	who     string
	p       *player
	kind    string
	paths   []string
	permits int
	began   time.Duration // of the call
	from    time.Duration
	maxHold time.Duration
	session int64
	token   zklock.Token
	do      bool // the library releases it when a function returns

	// guarded by oracle.mu
	nodes    []string
	read     bool // a read lock
	holds    []*hold
	entering int           // re-entries under way: any of them may hold the lock already
	voided   time.Duration // when the oracle first saw that a znode of it was removed by force
	lasts    time.Duration // until when its session lasts at the ensemble, as last seen
}

// hold is one hold of an acquisition.
type hold struct {
	*zklock.Hold
	released bool
}

func newOracle(w *world) *oracle {
	return &oracle{w: w, names: map[int64]string{}, forced: map[string]bool{},
		waited:  map[string]int64{},
		expired: map[int64]bool{},
		tokens:  map[string]zklock.Token{}, writers: map[string]zklock.Token{},
		sizes:   map[string][]sized{},
		written: map[string]int64{}, done: map[jobKey]bool{}, called: map[jobKey]int{},
		last: map[string]*acquisition{}}
}

// owner returns the name of a session's client.
func (o *oracle) owner(session int64) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if name, ok := o.names[session]; ok {
		return name
	}
	return "a new client"
}

func (t *acquisition) live() bool {
	return slices.ContainsFunc(t.holds, func(g *hold) bool { return g.Context().Err() == nil })
}

// reads reports whether other readers may hold at the same time.
func (t *acquisition) reads() bool { return t.read }

// removedByForce reports whether the znode of its ith path was removed by force.
func (o *oracle) removedByForce(t *acquisition, i int) bool {
	if !o.forced[t.nodes[i]] && !o.expired[t.session] {
		return false
	}
	_, stands := o.w.srv.Node(t.nodes[i])
	return !stands
}

// acquired adds an acquisition at the instant at which its call returned, and checks that the call
// may have it.
func (o *oracle) acquired(t *acquisition) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stepLocked()
	t.from = o.w.now()
	o.held = slices.DeleteFunc(o.held, func(t *acquisition) bool { return !t.live() })
	for i, p := range t.paths {
		// A token is its znode's czxid: this is the znode that was removed, and not a later one of
		// the same name.
		if o.waited[t.nodes[i]] == int64(t.token) {
			o.w.violated("%s holds %s by %s, which was removed while the call waited", t.who, p,
				short(t.nodes[i]))
		}
		if o.removedByForce(t, i) {
			continue
		}
		for _, other := range o.held {
			j := slices.Index(other.paths, p)
			if j < 0 || t.kind == "semaphore" || t.reads() && other.reads() ||
				o.removedByForce(other, j) {
				continue
			}
			o.w.violated("two holders of %s: %s (%s, token %d) and %s (%s, token %d)", p, t.who,
				t.kind, t.token,
				other.who, other.kind, other.token)
		}
		o.checkOrder(t, i)
		o.ordered(t, p)
	}
	o.held = append(o.held, t)
	o.working = append(o.working, t)
	o.checkZnodes(t)
}

// ordered checks that the token is greater than those of all earlier holders that could not have
// held beside t.
func (o *oracle) ordered(t *acquisition, p string) {
	before := o.tokens[p]
	switch t.kind {
	case "read":
		before = o.writers[p]
	case "semaphore":
		// they hold together: checkOrder checks their order, and their calls may return in any
		// order
		before = 0
	case "write":
		o.writers[p] = max(o.writers[p], t.token)
	}
	if t.token <= before && !o.shared(t, p) {
		o.w.violated("token %d of %s on %s, after %d", t.token, t.who, p, before)
	}
	if t.token >= o.tokens[p] {
		o.tokens[p], o.last[p] = t.token, t
	}
}

// checkOrder checks in the tree that t may hold: no earlier contender is in the way, the permits
// suffice, and, in an election, no candidate of higher rank waits for whom t had to step aside.
func (o *oracle) checkOrder(t *acquisition, i int) {
	dir, own := path.Split(t.nodes[i])
	me, _ := recipe.Parse(own)
	sum, limit := me.Permits, o.limit(t.paths[i], t.began)
	entered := func(name string) int64 {
		// in the order of the transactions, which the sequence number need not show
		node, _ := o.w.srv.Node(dir + name)
		return node.Stat.Czxid
	}
	since := entered(own)
	for _, name := range o.w.srv.Children(path.Clean(dir)) {
		n, contender := recipe.Parse(name)
		outranked := contender && t.kind == "election" && n.Rank > me.Rank
		if outranked && me.MayStepAside(since, o.led(dir)) && o.waitsLong(dir+name) {
			o.w.violated("%s leads %s by %s, and %s of higher rank waits", t.who, t.paths[i], own,
				name)
		}
		if !contender || name == own || entered(name) >= since {
			continue
		}
		switch {
		case me.Kind == recipe.Permits:
			sum += n.Permits
		case me.Kind != recipe.Read || n.Kind != recipe.Read:
			o.w.violated("%s holds %s with %s while %s is before it", t.who, t.paths[i], own, name)
		}
	}
	if sum > limit && me.Kind == recipe.Permits {
		o.w.violated("%s holds permits of %s with %s, and %d of %d permits are held", t.who,
			t.paths[i], own, sum, limit)
	}
}

// led returns the zxid of the latest sign that an election, whose directory dir is, has been led.
func (o *oracle) led(dir string) int64 {
	n, _ := o.w.srv.Node(path.Clean(dir))
	return n.Stat.Mzxid
}

// waitsLong reports whether a znode is older than a message may be under way: a client that lists
// now has it in the list.
func (o *oracle) waitsLong(node string) bool {
	n, ok := o.w.srv.Node(node)
	return ok && time.Since(time.UnixMilli(n.Stat.Ctime)) > 2*maxTimeout
}

// limit returns the greatest size that a semaphore has had since began.
func (o *oracle) limit(p string, began time.Duration) int {
	limit := 0
	for i, s := range o.sizes[p] {
		if i+1 == len(o.sizes[p]) || o.sizes[p][i+1].from >= began {
			limit = max(limit, s.size)
		}
	}
	return limit
}

// checkZnodes checks that the znodes of a live hold exist and belong to its session, unless they
// were removed by force.
func (o *oracle) checkZnodes(t *acquisition) {
	if !t.live() {
		return
	}
	o.checkSafe(t)
	for i, node := range t.nodes {
		n, ok := o.w.srv.Node(node)
		switch {
		case ok && n.Stat.EphemeralOwner != t.session && t.session != 0:
			o.w.violated("%s holds %s by the znode %s of session %#x, and its own session is %#x",
				t.who, t.paths[i], node,
				n.Stat.EphemeralOwner, t.session)
		case ok:
		case !o.forced[node] && !o.expired[t.session]:
			o.w.violated("%s holds %s without a znode: %s is gone, seen at %v", t.who, t.paths[i],
				node, o.w.now())
			o.forced[node] = true // report it once
		case t.voided == 0:
			t.voided = o.w.now()
		case o.w.now()-t.voided > maxTimeout+3*time.Second:
			o.w.violated("%s has not been notified since %v that %s was removed", t.who, t.voided,
				node)
			t.voided = o.w.now()
		}
	}
}

// checkLasts checks that nobody closes the session of a lock whose work still runs: a session that
// its client has given up lasts until its time is over at the ensemble.
func (o *oracle) checkLasts(t *acquisition) {
	now := o.w.now()
	s, stands := o.w.srv.Session(t.session)
	switch {
	case stands:
		t.lasts = now + s.ExpiresIn
	case now < t.lasts && !o.expired[t.session] && !t.p.closedSince(t.began):
		o.w.violated(
			"the session of %s was closed %v before its time, and the work under %v still runs", t.who, t.lasts-now, t.paths)
		t.lasts = 0 // report it once
	}
}

// checkSafe checks that the SafeUntil of a live hold is in the future, and that the ensemble will
// not end the session before it.
func (o *oracle) checkSafe(t *acquisition) {
	until := t.holds[0].SafeUntil()
	if !time.Now().Before(until) {
		o.w.violated("%s holds %v, and its SafeUntil was %v", t.who, t.paths, until.Sub(o.w.start))
	}
	if o.expired[t.session] || o.zxid%8 != 0 { // the next check is expensive
		return
	}
	if s, ok := o.w.srv.Session(t.session); ok && time.Now().Add(s.ExpiresIn).Before(until) {
		o.w.violated("the SafeUntil of %s is %v, and its session ends in %v", t.who,
			until.Sub(o.w.start), s.ExpiresIn)
	}
}

// follow runs the checks after every event in the server.
func (o *oracle) follow(ctx context.Context) {
	_ = o.w.srv.Await(ctx, func() bool { // until ctx ends
		o.step()
		return false
	})
}

// step checks the guarantees that hold at all times.
func (o *oracle) step() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stepLocked()
}

// stepLocked is step for a caller that holds mu. It does nothing if nothing was written since.
func (o *oracle) stepLocked() {
	zxid := o.w.srv.Zxid()
	if zxid == o.zxid {
		return
	}
	o.zxid = zxid
	for _, t := range o.held {
		o.checkZnodes(t)
	}
	o.working = slices.DeleteFunc(o.working, func(t *acquisition) bool {
		return t.open() == nil && t.entering == 0
	})
	for _, t := range o.working {
		o.checkLasts(t)
	}
	for i, p := range o.w.paths {
		if o.w.fam[i] == famSem {
			o.measure(p)
			continue
		}
		o.fence(p)
	}
}

// patience is for how long a contender may be next, after the last fault, before it holds: as long
// as a session that its client has given up lasts, and as the first look without an event may take.
const patience = maxTimeout + 5*time.Second

// demandProgress checks, until ctx ends, that a call holds whose znodes are next in every line. It
// begins after the last fault.
func (o *oracle) demandProgress(ctx context.Context) {
	since := map[string]time.Duration{} // by znode
	for pause(ctx, time.Second, remProgress) {
		o.mu.Lock()
		next := o.next()
		maps.DeleteFunc(since, func(node string, _ time.Duration) bool {
			return !slices.Contains(next, node)
		})
		for _, node := range next {
			began, known := since[node]
			switch held := slices.ContainsFunc(o.held, func(t *acquisition) bool {
				return slices.Contains(t.nodes, node)
			}); {
			case held, !known:
				since[node] = o.w.now()
			case o.w.now()-began > patience:
				o.w.violated("%s is next in line since %v, and does not hold", node, began)
				since[node] = o.w.now()
			}
		}
		o.mu.Unlock()
	}
}

// next returns the znodes of the calls that hold, or should: nobody is in their way. A call's
// znodes are those of one transaction, and all of them must be next.
//
// The znodes of a MultiLock have the transaction in common, and no other mark. Calls that are sent
// together (world.busy) have one in common, too, and are taken for one call. So if one of these
// calls waits, another one that should hold and does not goes unnoticed.
func (o *oracle) next() []string {
	nodes := map[int64][]string{} // by transaction (czxid), at first of all contenders
	waits := map[int64]bool{}     // transactions with a znode that is not next
	for i, p := range o.w.paths {
		type contender struct {
			recipe.Name
			czxid int64
			node  string
		}
		var line []contender
		for _, name := range o.w.srv.Children(p) {
			n, ok := recipe.Parse(name)
			if node, stands := o.w.srv.Node(p + "/" + name); ok && stands {
				line = append(line, contender{n, node.Stat.Czxid, p + "/" + name})
			}
		}
		slices.SortFunc(line, func(a, b contender) int { return cmp.Compare(a.czxid, b.czxid) })
		permits, writers := 0, 0
		for k, c := range line {
			permits += c.Permits
			isNext := k == 0 || c.Kind == recipe.Read && writers == 0
			if o.w.fam[i] == famSem {
				isNext = permits <= o.limit(p, o.w.now())
			}
			if c.Kind != recipe.Read {
				writers++
			}
			nodes[c.czxid] = append(nodes[c.czxid], c.node)
			if !isNext {
				waits[c.czxid] = true
			}
		}
	}
	maps.DeleteFunc(nodes, func(czxid int64, _ []string) bool { return waits[czxid] })
	return slices.Concat(slices.Collect(maps.Values(nodes))...)
}

// measure notes a semaphore's size.
func (o *oracle) measure(p string) {
	n, ok := o.w.srv.Node(p)
	if !ok {
		return
	}
	var state struct{ Size int }
	if len(n.Data) > 0 && json.Unmarshal(n.Data, &state) != nil {
		o.w.violated("semaphore %s has the data %q", p, n.Data)
	}
	if all := o.sizes[p]; state.Size > 0 && (len(all) == 0 || all[len(all)-1].size != state.Size) {
		o.sizes[p] = append(all, sized{o.w.now(), state.Size})
	}
}

// fence checks that no earlier holder overwrites what a holder has written with Multi.
func (o *oracle) fence(p string) {
	n, _ := o.w.srv.Node(register(p))
	v, _ := strconv.ParseInt(string(n.Data), 10, 64) // empty: not written yet
	if v < o.written[p] {
		o.w.violated("the register of %s was set to %d after %d: a late write was made", p, v,
			o.written[p])
	}
	o.written[p] = v
}

// acknowledged checks that a write of t was carried out.
func (o *oracle) acknowledged(t *acquisition) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stepLocked()
	for _, p := range t.paths {
		if o.written[p] < int64(t.token) {
			o.w.violated("a write of %s to the register of %s is lost: it has %d, not %d", t.who, p,
				o.written[p], t.token)
		}
	}
}

// noneHolds checks, at the end, that the context of every hold has ended.
func (o *oracle) noneHolds() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, t := range o.held {
		if t.live() {
			o.w.violated("%s still holds %v", t.who, t.paths)
		}
	}
}

// ended checks that a hold's context ended with a cause that applies.
func (o *oracle) ended(t *acquisition, g *hold) {
	o.mu.Lock()
	defer o.mu.Unlock()
	deleted := slices.ContainsFunc(t.nodes, func(n string) bool { return o.forced[n] })
	forced := o.expired[t.session] || deleted
	cause := context.Cause(g.Context())
	ok := false
	switch {
	case errors.Is(cause, zklock.ErrUnlocked):
		ok = g.released
	case errors.Is(cause, zklock.ErrMaxHold):
		ok = t.maxHold > 0 && o.w.now()-t.from >= t.maxHold
	case errors.Is(cause, zklock.ErrNodeDeleted): // by somebody, and not with the session
		ok = deleted
	case errors.Is(cause, zklock.ErrSessionExpired), errors.Is(cause, zklock.ErrNodeGone):
		ok = forced
	case errors.Is(cause, zklock.ErrLeaseExpired):
		ok = true
	case errors.Is(cause, zklock.ErrClosed):
		ok = t.p.closedSince(t.began)
	}
	if !ok {
		o.w.violated("the hold of %v by %s ended with %v", t.paths, t.who, cause)
	}
}

// shared reports whether t has the znode of the holder before it, by WithLocalHandoff: both are of
// one client and session, and that one was unlocked, and not lost.
func (o *oracle) shared(t *acquisition, p string) bool {
	last := o.last[p]
	lost := func(h *hold) bool { return !errors.Is(context.Cause(h.Context()), zklock.ErrUnlocked) }
	return o.w.handoff && t.kind == "mutex" && t.token == o.tokens[p] && last.p == t.p &&
		t.session == last.session &&
		!slices.ContainsFunc(last.holds, lost)
}

// short returns a contender's name without its random id, so that two runs have the same history.
func short(name string) string {
	n, ok := recipe.Parse(path.Base(name))
	if !ok {
		return name
	}
	return fmt.Sprintf("%s %d", n.Kind, n.Number)
}

// resized reports whether the size of t's semaphore has changed since the call of t began.
func (o *oracle) resized(t *acquisition) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := o.sizes[t.paths[0]]
	return t.kind == "semaphore" && len(all) > 0 && all[len(all)-1].from >= t.began
}
