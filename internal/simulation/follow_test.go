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

// The code follows the model: the requests, replies and notifications of a client, and the holds that it returns, are steps
// of internal/model/queue.pml. The follower follows each contender from its create to its deletion:
//
//	create    a create whose reply was lost is repeated only after the client has looked for its znode by a sync and then a list
//	list      if a list shows the contender and none before it, it may hold; otherwise the nearest one before it is its
//	          predecessor, and, if that is the only one before it, the last
//	watch     the client watches only the contender and its predecessors
//	event     the contender may hold when the client is notified of the deletion of the last one, on a connection on which it
//	          watches the contender and has not been notified of the contender's deletion; or when a watch that is set behind
//	          that notification finds the contender ("hold by watch")
//	mark      it may hold when the client is notified of the creation of a predecessor's release mark and then of the
//	          predecessor's deletion, both of one transaction, under the conditions of event; it need not be the last one
//	hold      a call returns with a hold only if its contender may hold
//	leave     the client deletes only contenders of its own, and makes a mark only if the contender may hold and had to wait
//
// The runs have only mutexes, and the same faults as all others.

var follows = flag.Uint64("follows", 80, "how many seeds to compare with the model")

// contender is what the owner of one znode has learned about it.
type contender struct {
	near map[string]bool // predecessors that lists have shown
	last map[string]bool // those of them that were the only ones before it
	may  string          // the step by which it may hold; "": it may not
}

// creation is the state of a create that was sent: whether it is unanswered, and how far the search for its znode is.
type creation struct {
	open   bool
	search int
}

// The steps of a search. The reply to the list ends it.
const (
	syncAsked = iota + 1
	synced
	listAsked
)

// follower compares what one client does with the model.
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

// conn is one connection of the client, as the follower sees it. Its maps are guarded by the follower's mutex.
type conn struct {
	f       *follower
	watched map[string]bool
	gone    map[string]bool  // znodes of whose deletion the client was notified
	marked  map[string]int64 // contenders of whose mark's creation the client was notified, and the transactions' zxids
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

// mine reports whether a znode may be this client's: its name has the id of one of the client's creates.
func (f *follower) mine(node string) bool {
	i := strings.LastIndex(node, "-lock-")
	return i >= 0 && f.ids[node[:i+len("-lock-")]] != nil
}

// contenderOf returns the contender of one of the client's znodes.
func (f *follower) contenderOf(node string) *contender {
	c := f.own[node]
	if c == nil {
		c = &contender{near: map[string]bool{}, last: map[string]bool{}}
		f.own[node] = c
	}
	return c
}

// number returns the sequence number of a contender. The runs end long before the counter reaches its end.
func number(name string) (int, bool) {
	i := strings.LastIndex(name, "-lock-")
	if i < 0 {
		return 0, false
	}
	n, err := strconv.Atoi(name[i+len("-lock-"):])
	return n, err == nil
}

// asked is called with each request, before it is sent.
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

// searches moves the searches in a directory from one step to another.
func (f *follower) searches(dir string, from, to int) {
	for id, k := range f.ids {
		if k.open && k.search == from && path.Dir(id) == dir {
			k.search = to
		}
	}
}

// synced is called with the reply to a sync.
func (c *conn) synced(dir string) {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	c.f.searches(dir, syncAsked, synced)
}

// answered is called with each reply, even an error: the reply to r is not lost.
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

// madeTogether is the success of a transaction with these parts, which made these paths. A contender that was made together
// with its directory is the only one there.
func (c *conn) madeTogether(parts []request, paths []string) {
	f := c.f
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := 1; i < len(parts); i++ {
		if dir := parts[i-1]; dir.op != zktest.OpDelete && dir.paths[0] == path.Dir(parts[i].paths[0]) && f.mine(paths[i]) {
			f.contenderOf(paths[i]).may = "directory"
		}
	}
}

// writes is called with each create and delete that is sent. rest are the operations behind it in its transaction.
func (f *follower) writes(r request, rest []request) {
	node := r.paths[0]
	owner, mark := strings.CutSuffix(node, markSuffix)
	switch {
	case r.op == zktest.OpDelete && mark:
	case r.op == zktest.OpDelete:
		if _, ok := number(path.Base(node)); ok && !f.mine(node) {
			f.departs("it deletes %s, which is not its own", node)
		}
		f.steps["leave"]++
	case mark:
		k := f.own[owner]
		if k == nil || k.may == "" || len(k.near) == 0 {
			f.departs("it makes the mark of %s, which has not held, or did not have to wait", owner)
		}
		if len(rest) < 2 || rest[0].op != zktest.OpDelete || rest[0].paths[0] != node || rest[1].op != zktest.OpDelete || rest[1].paths[0] != owner {
			f.departs("it makes the mark of %s in a transaction with other operations: %v", owner, rest)
		}
		f.steps["leave by mark"]++
	case strings.HasSuffix(node, "-lock-"):
		if k := f.ids[node]; k != nil && k.open {
			f.departs("it repeats the create of %s, and has not looked for it after a sync", node)
		} else if k != nil && k.search == listAsked {
			f.steps["create again"]++
		}
		f.ids[node] = &creation{open: true}
		f.steps["create"]++
	}
}

// watch checks that a watched contender is the client's own or a predecessor.
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
	f.departs("it watches %s, which is not the predecessor of any of its contenders", node)
}

// listed is called with each list of a directory.
func (c *conn) listed(dir string, names []string) {
	f := c.f
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, k := range f.ids {
		if k.search == listAsked && path.Dir(id) == dir {
			k.open = false // if the list shows the znode, it may be of an earlier session, or be gone when it is read
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

// created is called with the notification of a creation.
func (c *conn) created(node string, zxid int64) {
	f := c.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if owner, ok := strings.CutSuffix(node, markSuffix); ok {
		c.marked[owner] = zxid
	}
}

// deleted is called with the notification of a deletion.
func (c *conn) deleted(node string, zxid int64) {
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
			k.may = "mark"
		}
	}
}

// watchesSet is called with the reply to setWatches. The server has notified of deleted znodes before it.
func (c *conn) watchesSet(nodes []string) {
	f := c.f
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, node := range nodes {
		k := f.own[node]
		if k == nil || c.gone[node] || k.may != "" {
			continue
		}
		for pred := range k.last {
			if c.gone[pred] { // the client was notified of that on this connection, and then the server found the contender
				k.may = "watch"
			}
		}
	}
}

// holds is called when a call returns with a hold of a znode.
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

// simulateFollowed runs one seed with only mutexes. It returns nil for a seed that is not followed.
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
		if w.aged { // the follower orders contenders by number
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
	for _, step := range []string{"create", "watch", "hold by list", "hold by directory", "hold by event", "hold by mark", "leave by mark", "leave"} { // "hold by watch" is rare
		require.Greater(t, steps[step], ran, "too few of the model's step %q", step)
	}
}
