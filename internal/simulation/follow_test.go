package simulation_test

import (
	"flag"
	"fmt"
	"path"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zktest"
)

// The code follows the model: what a client is told and asks on its connections, and what it concludes, are steps that
// internal/model/queue.pml has. A contender is followed from its create to its deletion:
//
//	creating  a create whose reply was lost is made again only after its znode was looked for by a sync and a list behind it
//	listed    a list that shows the own znode: with nobody before it, it may hold; else the nearest before it is its
//	          predecessor, and, if that is the only one, the last
//	watching  only the own znode and a predecessor are watched
//	told      the last one's deletion is told, on a connection on which the own znode is watched, and its deletion has
//	          not been told on it: it may hold; so also when the own znode is found there after that deletion was told
//	word      its release mark's creation is told, and then its deletion, both of one transaction, under the same condition
//	          but for its being the last one: it may hold
//	holding   a call that returns with a hold may hold by one of these
//	leaving   only a znode of one's own is deleted; with a mark only by one that may hold, and has had to wait
//
// The runs are those of mutexes alone, under the same faults as all others.

var follows = flag.Uint64("follows", 80, "how many seeds to hold against the model")

// contender is what one znode's owner knows.
type contender struct {
	near map[string]bool // predecessors that lists have shown
	last map[string]bool // those of them that were the only ones before it
	may  string          // by which step it may hold; "" by none
}

// creation is what is known of a create that has left: whether it is unanswered, and how far the search for its znode is.
type creation struct {
	open   bool
	search int
}

// The steps of a search; an answer to the list ends it.
const (
	syncAsked = iota + 1
	synced
	listAsked
)

// follower holds what one client does against the model.
type follower struct {
	w    *world
	name string

	mu    sync.Mutex // guards what follows
	ids   map[string]*creation
	own   map[string]*contender
	conns int
	steps map[string]int
}

func newFollower(w *world, name string) *follower {
	return &follower{w: w, name: name, ids: map[string]*creation{}, own: map[string]*contender{}, steps: map[string]int{}}
}

// conn is one connection of the client's, as the follower sees it. It is used under the follower's mutex.
type conn struct {
	f       *follower
	watched map[string]bool
	gone    map[string]bool
	marked  map[string]int64 // contenders whose marks' creation has been told, and by which transaction
}

func (f *follower) conn() *conn {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conns++
	return &conn{f: f, watched: map[string]bool{}, gone: map[string]bool{}, marked: map[string]int64{}}
}

func (f *follower) departs(format string, args ...any) {
	f.w.violated("%s departs from the model: %s", f.name, fmt.Sprintf(format, args...))
}

// mine reports whether a znode can be one of this client's, by the id in its name. Adopted ones are found so.
func (f *follower) mine(node string) bool {
	i := strings.LastIndex(node, "-lock-")
	return i >= 0 && f.ids[node[:i+len("-lock-")]] != nil
}

// contenderOf returns what is known of a znode of one's own.
func (f *follower) contenderOf(node string) *contender {
	c := f.own[node]
	if c == nil {
		c = &contender{near: map[string]bool{}, last: map[string]bool{}}
		f.own[node] = c
	}
	return c
}

// number returns a contender's; the runs end long before the counter does.
func number(name string) (int, bool) {
	i := strings.LastIndex(name, "-lock-")
	if i < 0 {
		return 0, false
	}
	n, err := strconv.Atoi(name[i+len("-lock-"):])
	return n, err == nil
}

// asked is a request that leaves.
func (c *conn) asked(r request) {
	f := c.f
	f.mu.Lock()
	defer f.mu.Unlock()
	switch r.op {
	case zktest.OpCreate, zktest.OpCreate2, zktest.OpDelete:
		f.writes(r, nil)
	case zktest.OpMulti:
		for i, part := range r.parts {
			f.writes(part, r.parts[i+1:])
		}
	case zktest.OpSetWatches, zktest.OpExists:
		for _, node := range r.paths {
			c.watch(node)
		}
	case zktest.OpSync:
		f.searches(r.paths[0], 0, syncAsked)
	case zktest.OpGetChildren, zktest.OpGetChildren2:
		f.searches(r.paths[0], synced, listAsked)
	}
}

// searches takes the searches in a directory from one step to another.
func (f *follower) searches(dir string, from, to int) {
	for id, k := range f.ids {
		if k.open && k.search == from && path.Dir(id) == dir {
			k.search = to
		}
	}
}

// synced is the answer to a sync.
func (c *conn) synced(dir string) {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	c.f.searches(dir, syncAsked, synced)
}

// answered is a reply, whatever it says: what it answers is not lost.
func (c *conn) answered(r request) {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	for _, part := range append(r.parts, r) {
		if len(part.paths) > 0 && c.f.ids[part.paths[0]] != nil {
			c.f.ids[part.paths[0]].open = false
		}
	}
}

const markSuffix = "-released"

// writes is a create or a delete that leaves; rest is what is behind it in its transaction.
func (f *follower) writes(r request, rest []request) {
	node := r.paths[0]
	owner, mark := strings.CutSuffix(node, markSuffix)
	switch {
	case r.op == zktest.OpDelete && mark:
	case r.op == zktest.OpDelete:
		if _, ok := number(path.Base(node)); ok && !f.mine(node) {
			f.departs("it deletes %s", node)
		}
		f.steps["leave"]++
	case mark:
		k := f.own[owner]
		if k == nil || k.may == "" || len(k.near) == 0 {
			f.departs("it makes the mark of %s, which has not held, or had nobody before it", owner)
		}
		if len(rest) < 2 || rest[0].op != zktest.OpDelete || rest[0].paths[0] != node || rest[1].op != zktest.OpDelete || rest[1].paths[0] != owner {
			f.departs("it makes the mark of %s in a transaction of another kind: %v", owner, rest)
		}
		f.steps["leave by mark"]++
	case strings.HasSuffix(node, "-lock-"):
		if k := f.ids[node]; k != nil && k.open {
			f.departs("it makes %s again, and has not looked for it behind a sync", node)
		} else if k != nil && k.search == listAsked {
			f.steps["create again"]++
		}
		f.ids[node] = &creation{open: true}
		f.steps["create"]++
	}
}

// watch checks that a contender that is watched is one's own or a predecessor.
func (c *conn) watch(node string) {
	f := c.f
	c.watched[node] = true
	node = strings.TrimSuffix(node, markSuffix)
	if _, ok := number(path.Base(node)); !ok || f.mine(node) {
		return
	}
	f.steps["watch"]++
	for own, k := range f.own {
		if path.Dir(own) == path.Dir(node) && k.near[node] {
			return
		}
	}
	f.departs("it watches %s, which is nobody's predecessor", node)
}

// listed is a list that arrives.
func (c *conn) listed(dir string, names []string) {
	f := c.f
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, k := range f.ids {
		if k.search == listAsked && path.Dir(id) == dir {
			k.open = false // if it shows the znode, that may be of a session before this one, or be gone when it is read
		}
	}
	for _, name := range names {
		node := dir + "/" + name
		me, ok := number(name)
		if !ok || !f.mine(node) {
			continue
		}
		k := f.contenderOf(node)
		before, nearest, pred := 0, -1, ""
		for _, other := range names {
			if n, ok := number(other); ok && n < me {
				before++
				if n > nearest {
					nearest, pred = n, dir+"/"+other
				}
			}
		}
		if before == 0 {
			k.may = "list"
			continue
		}
		k.near[pred] = true
		if before == 1 {
			k.last[pred] = true
		}
	}
}

// made tells of a creation.
func (c *conn) made(node string, zxid int64) {
	f := c.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if owner, ok := strings.CutSuffix(node, markSuffix); ok {
		c.marked[owner] = zxid
	}
}

// told tells of a deletion.
func (c *conn) told(node string, zxid int64) {
	f := c.f
	f.mu.Lock()
	defer f.mu.Unlock()
	c.gone[node] = true
	for own, k := range f.own {
		switch {
		case k.may != "" || !c.watched[own] || c.gone[own]:
		case k.last[node]:
			k.may = "event"
		case k.near[node] && c.marked[node] == zxid && zxid > 0:
			k.may = "word"
		}
	}
}

// set is the answer to a request for watches: what it has found gone has been told before.
func (c *conn) set(nodes []string) {
	f := c.f
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, node := range nodes {
		k := f.own[node]
		if k == nil || c.gone[node] || k.may != "" {
			continue
		}
		for pred := range k.last {
			if c.gone[pred] { // told, on this connection, before the own znode was seen to exist
				k.may = "watch"
			}
		}
	}
}

// holds is a call that returns with a hold of a znode.
func (f *follower) holds(node string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	k := f.own[node]
	if k == nil || k.may == "" {
		f.departs("it holds %s by no step of the model", node)
		return
	}
	f.steps["hold by "+k.may]++
}

// simulateFollowed runs one seed with mutexes alone; nil if it is not one of those that are followed.
func simulateFollowed(t *testing.T, seed uint64) (w *world) {
	defer func() {
		switch p := recover(); {
		case p != nil && w == nil:
			panic(p)
		case p != nil:
			w.violated("panic: %v", p)
		}
		if w != nil && len(w.bad) > 0 {
			t.Error(w.report())
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Run(t, zktest.WithoutListener())
		var err error
		w, err = newWorld(seed, srv, zktest.Version39)
		require.NoError(t, err)
		if w.aged { // the order is that of the numbers here
			w = nil
			return
		}
		for i := range w.fam {
			w.fam[i] = famMutex
		}
		w.handoff, w.idle, w.neighbour, w.garbles = 0, 0, false, false
		for _, p := range w.players {
			p.follow = newFollower(w, p.name)
		}
		w.run(t.Context())
	})
	return w
}

// The steps are those of internal/model/queue.pml.
func TestTheModelAllowsEveryStepOfTheClients(t *testing.T) {
	defer collectRarely()()
	steps := map[string]int{}
	late := time.Now().Add(*limit / 2)
	ran, failed := 0, int64(0)
	for seed := *first; seed < *first+*follows && (time.Now().Before(late) || ran < 10) && (*stop == 0 || failed < *stop); seed++ {
		w := simulateFollowed(t, seed)
		if w == nil {
			continue
		}
		ran++
		if len(w.bad) > 0 {
			failed++
		}
		for _, p := range w.players {
			for step, n := range p.follow.steps {
				steps[step] += n
			}
		}
		if runtime.GOMAXPROCS(0) == 1 {
			collect()
		}
	}
	t.Logf("%d seeds: %v", ran, steps)
	for _, step := range []string{"create", "watch", "hold by list", "hold by event", "hold by word", "leave by mark", "leave"} { // "hold by watch" is rare
		require.Greater(t, steps[step], ran, "of the model's step %q nearly none was seen", step)
	}
}
