package main

import (
	"strconv"
	"strings"
)

// A second, independent implementation of queue.pml, step by step: unless one of the two has a mistake, both have the
// same number of states. It has no bounds of calls and faults.

// A client's position, and the messages on their way, as queue.pml numbers them.
const (
	idle uint8 = iota
	creating
	sweeping
	finding
	cleaning
	listing
	watching
	waiting
	holding
	leaving
)

const (
	create uint8 = iota + 1
	remove
	marked
	mark
)

const (
	watchHead = iota + 1
	noSecondLook
	ownNotWatched
	giveUpStays
	noSync
	deleteOnce
	createForgotten
	oldConnection
	markWithoutHold
	markFirst
	notWatched
)

const (
	clients = 3
	ids     = 6
	none    = 255
)

// state is one of the model's. It is compared as a whole.
type state struct {
	tree                   [3]uint8
	n                      uint8
	before                 [ids]uint8
	marked, headed, forced uint8

	st, me, seen, reply, pend, pred [clients]uint8
	last, waited, cut, dead         [clients]bool
	cur, old, late                  [clients]uint8
}

// settings are the parameters.
type settings struct {
	n, slots, lag, mutant                 int
	marks, cut, giveup, lose, force, kill bool
}

func parameters(text string) settings {
	p := settings{n: 3, slots: 2, lag: 2, cut: true, giveup: true, lose: true, force: true, kill: true}
	for _, field := range strings.Fields(text) {
		name, number, _ := strings.Cut(strings.TrimPrefix(field, "-D"), "=")
		v, err := strconv.Atoi(number)
		if err != nil {
			panic(err)
		}
		switch name {
		case "N":
			p.n = v
		case "SLOTS":
			p.slots = v
		case "LAG":
			p.lag = v
		case "MUTANT":
			p.mutant = v
		case "MARKS":
			p.marks = v > 0
		case "CUT":
			p.cut = v > 0
		case "GIVEUP":
			p.giveup = v > 0
		case "LOSE":
			p.lose = v > 0
		case "FORCE":
			p.force = v > 0
		case "KILL":
			p.kill = v > 0
		default:
			panic(text)
		}
	}
	return p
}

// walk is a search of all states.
type walk struct {
	settings
	state         // the state from which the step is made; the step changes it
	c      int    // the client that makes it
	broken string // the promise that the step breaks
	found  map[state]bool
	todo   []state
}

// states returns the number of states, and the first promise that is found broken.
func states(p settings) (count int, broken string) {
	w := &walk{settings: p, found: map[state]bool{{}: true}, todo: []state{{}}}
	for len(w.todo) > 0 && w.broken == "" {
		from := w.todo[len(w.todo)-1]
		w.todo = w.todo[:len(w.todo)-1]
		for w.c = range p.n {
			for _, step := range steps {
				w.state = from
				if step(w) {
					w.tidy()
					if !w.found[w.state] {
						w.found[w.state] = true
						w.todo = append(w.todo, w.state)
					}
				}
			}
		}
	}
	return len(w.found), w.broken
}

// assert records the first promise that does not hold.
func (w *walk) assert(holds bool, promise string) {
	if !holds && w.broken == "" {
		w.broken = promise
	}
}

func bit(i uint8) uint8         { return 1 << i }
func (w *walk) own() uint8      { return bit(w.me[w.c]) }
func (w *walk) view() uint8     { return w.tree[w.seen[w.c]] }
func (w *walk) leader() uint8   { return w.tree[w.state.n] }
func (w *walk) room() bool      { return int(w.state.n) < w.lag }
func (w *walk) replied() bool   { return w.reply[w.c] > 0 && w.seen[w.c]+1 >= w.reply[w.c] }
func (w *walk) at(s uint8) bool { return w.st[w.c] == s }

// tidy drops transactions that every server has applied, and znodes that no client can see any more.
func (w *walk) tidy() {
	m := w.state.n
	for i := range w.settings.n {
		if w.st[i] == idle {
			w.seen[i] = w.state.n
			w.assert(w.leader()&w.cur[i] == 0 || w.dead[i], "nothing left")
		} else {
			m = min(m, w.seen[i])
		}
	}
	if m > 0 {
		for i := range w.tree {
			if j := i + int(m); j <= int(w.state.n) {
				w.tree[i] = w.tree[j]
			} else {
				w.tree[i] = 0
			}
		}
		w.state.n -= m
		for i := range w.settings.n {
			w.seen[i] -= m
			if w.reply[i] > 0 {
				w.reply[i] = max(w.reply[i], m+1) - m
			}
		}
	}
	var all uint8
	for i := range w.state.n + 1 {
		all |= w.tree[i]
	}
	keep := all
	for i := range w.settings.n {
		here := uint8(0)
		if w.st[i] != idle {
			here = bit(w.me[i])
		}
		keep |= here
		if w.late[i] > 0 {
			keep |= bit(w.late[i] - 1)
		}
		w.cur[i] &= all | here
		if w.st[i] == idle && w.cur[i] == 0 {
			w.dead[i], w.state.cut[i] = false, false
		}
	}
	for i := range uint8(ids) {
		if all&bit(i) == 0 {
			w.before[i] = 0
		}
		w.before[i] &= all
	}
	w.state.marked &= all
	w.headed &= keep
	w.forced &= keep
}

func (w *walk) commit(set uint8) {
	w.state.n++
	w.tree[w.state.n] = set
	for i := range uint8(ids) {
		if set&bit(i) != 0 && set&w.before[i] == 0 {
			w.headed |= bit(i)
		}
	}
}

func (w *walk) create(id uint8) {
	w.before[id] = w.leader()
	w.commit(w.leader() | bit(id))
}

func (w *walk) over() {
	c := w.c
	w.st[c], w.me[c], w.pred[c], w.last[c], w.waited[c], w.pend[c], w.reply[c] = idle, 0, 0, false, false, 0, 0
}

func (w *walk) hold() {
	w.assert(w.headed&w.own() != 0, "exclusion")
	if w.forced&w.own() == 0 {
		w.assert(w.leader()&w.own() != 0 && w.leader()&w.before[w.me[w.c]] == 0, "exclusion")
		for i := range w.settings.n {
			w.assert(w.st[i] != holding || w.forced&bit(w.me[i]) != 0, "exclusion")
		}
	}
	w.st[w.c], w.pred[w.c], w.last[w.c] = holding, 0, false
}

func (w *walk) leave(how uint8) {
	c := w.c
	w.st[c], w.pred[c], w.last[c], w.reply[c] = leaving, 0, false, 0
	w.pend[c] = how
	if w.state.cut[c] {
		w.pend[c] = 0
	}
	w.waited[c] = how != remove
}

func (w *walk) release() {
	switch {
	case !w.marks || !w.waited[w.c]:
		w.leave(remove)
	case w.mutant == markFirst:
		w.leave(mark)
	default:
		w.leave(marked)
	}
}

func (w *walk) told(byMark bool) {
	if byMark || w.last[w.c] || w.mutant == noSecondLook {
		w.hold()
		return
	}
	w.again()
}

// again goes back to the list.
func (w *walk) again() { w.st[w.c], w.pred[w.c], w.last[w.c] = listing, 0, false }

// edge is the one of set that was created last, or first.
func (w *walk) edge(set uint8, first bool) uint8 {
	y := uint8(none)
	for i := range uint8(ids) {
		switch {
		case set&bit(i) == 0:
		case y == none, !first && w.before[i]&bit(y) != 0, first && w.before[y]&bit(i) != 0:
			y = i
		}
	}
	return y
}

func (w *walk) waiting() {
	c := w.c
	if w.at(waiting) && !w.state.cut[c] && w.seen[c] == w.state.n && w.leader()&w.own() != 0 {
		w.assert(w.leader()&w.before[w.me[c]] != 0, "no lost wake-up")
	}
	for i := range w.settings.n {
		if w.at(waiting) && i != c && w.st[i] == waiting && w.leader()&w.own() != 0 && w.leader()&bit(w.me[i]) != 0 {
			w.assert(w.pred[i] != w.pred[c], "no herd")
		}
	}
}
