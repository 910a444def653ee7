package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/zktest"
)

// neighbour is a foreign client that may create znodes in the locks' directories and delete its own, and nothing else.
// It names and numbers them as it likes. It can make the others wait, as any contender can; it must not be able to change
// their order, to let two of them hold, or to end a hold.
type neighbour struct {
	w    *world
	rnd  *rand.Rand
	mine []planted
}

// planted is one of its znodes.
type planted struct {
	node string
	text string        // of it, for the history, in which a random id of another's has no place
	due  time.Duration // when it is deleted
}

func newNeighbour(w *world) *neighbour { return &neighbour{w: w, rnd: w.rand(2)} }

// run goes on until ctx ends, and then deletes what it has created.
func (n *neighbour) run(ctx context.Context) {
	for pause(ctx, time.Millisecond+upTo(n.rnd, 800*time.Millisecond), 801) {
		n.clear(n.w.now())
		if len(n.mine) < 8 {
			n.plant()
		}
	}
	n.clear(math.MaxInt64)
}

// clear deletes those of its znodes that are due.
func (n *neighbour) clear(now time.Duration) {
	n.mine = slices.DeleteFunc(n.mine, func(p planted) bool {
		if p.due > now {
			return false
		}
		n.w.note("foreign", "deletes %s", p.text)
		if err := n.w.srv.Delete(p.node); err != nil && !errors.Is(err, zktest.CodeNoNode) { // somebody may have broken it
			n.w.violated("the neighbour deletes %s: %v", p.text, err)
		}
		return true
	})
}

// plant creates one znode. One in the others' way is deleted soon, so that they get their turns.
func (n *neighbour) plant() {
	k := n.rnd.IntN(len(n.w.paths))
	dir := n.w.paths[k]
	number, blocks := n.number(dir)
	tail := n.mark(n.w.fam[k]) + number
	node := dir + "/" + n.head(dir) + tail
	data := n.data()
	last := upTo(n.rnd, 4*time.Second)
	if blocks {
		last = upTo(n.rnd, 300*time.Millisecond)
	}
	n.w.oracle.foreign(node)
	if err := n.w.srv.Create(node, data); err != nil { // no such directory, for instance
		return
	}
	text := fmt.Sprintf("%s/…%s, named by %d bytes", dir, tail, len(node))
	n.w.note("foreign", "creates %s, with %d bytes, for %v", text, len(data), last)
	n.mine = append(n.mine, planted{node, text, n.w.now() + last})
}

// number draws one, as the server prints them, and says whether it can stand before those of the others.
func (n *neighbour) number(dir string) (text string, blocks bool) {
	next := int32(0) // of the directory's counter
	if node, ok := n.w.srv.Node(dir); ok {
		next = (node.Stat.Cversion + node.Stat.NumChildren) / 2
	}
	var v int32
	switch n.rnd.IntN(9) {
	case 0:
		v = math.MaxInt32
	case 1:
		v = math.MinInt32 + n.rnd.Int32N(3)
	case 2:
		v = -1 - n.rnd.Int32N(3)
	case 3: // far, on either side of half the circle
		v = next + math.MaxInt32 - 2 + n.rnd.Int32N(6)
	case 4:
		v = next + math.MaxInt32/2 + n.rnd.Int32N(100)
	case 5:
		v = int32(n.rnd.Uint32())
	case 6: // the next ones to be given out
		v = next + n.rnd.Int32N(4)
	case 7: // those that stand, and between them
		v = max(0, next-n.rnd.Int32N(6))
	case 8: // none
		return []string{"99999999999", "-000000000", "12", "lock", "9999999999", "0000000000x"}[n.rnd.IntN(6)], false
	}
	return fmt.Sprintf("%010d", v), v-next < 3
}

// mark is mostly that of the path's own kind.
func (n *neighbour) mark(fam int) string {
	own := [][]string{{"-lock-", "__lock__"}, {"-__READ__", "-__WRIT__", "__rlock__"}, {"-lease-1-", "-lease-2-", "-lease-1000000-"}}
	if n.rnd.IntN(12) == 0 {
		fam = n.rnd.IntN(len(own))
	}
	return own[fam][n.rnd.IntN(len(own[fam]))]
}

// head is what stands before the mark: another contender's id, too, and what is longer than a path may be for us.
func (n *neighbour) head(dir string) string {
	switch n.rnd.IntN(24) {
	case 0, 4, 5:
		return ""
	case 1, 6, 7:
		return "\u202e\u2028 "
	case 2, 8, 9:
		return strings.Repeat("n", 4000+n.rnd.IntN(12000))
	case 3:
		for _, name := range n.w.srv.Children(dir) {
			if id, _, ok := strings.Cut(name, "-lock-"); ok {
				return id
			}
		}
	}
	// A list has them before or behind all others, whose ids are random, so that two runs have the same order.
	return fmt.Sprintf("_c_%c%016x", "!z"[n.rnd.IntN(2)], n.rnd.Uint64())
}

func (n *neighbour) data() []byte {
	switch n.rnd.IntN(16) {
	case 0:
		return make([]byte, 900<<10)
	case 1, 2, 3:
		return []byte(`{"owner":"` + strings.Repeat("\u009b", n.rnd.IntN(2000)) + `","host":"here","pid":1}`)
	case 4:
		return []byte(`{"size":1000,"owner":7}`)
	}
	return nil
}

// foreign notes a znode that is no client's of ours.
func (o *oracle) foreign(node string) {
	o.mu.Lock()
	o.strangers[node] = true
	o.mu.Unlock()
}

// stranger reports whether a znode is the neighbour's.
func (o *oracle) stranger(node string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.strangers[node]
}

// ours removes the neighbour's znodes from the contenders of a directory. The caller holds mu.
func (o *oracle) ours(dir string) []string {
	return slices.DeleteFunc(o.w.srv.Children(dir), func(name string) bool {
		_, contender := recipe.Parse(name)
		return !contender || o.strangers[dir+"/"+name]
	})
}
