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

// neighbour is a foreign client that may create znodes, with any names and numbers, in the locks' directories and delete its
// own, and nothing else. It can make the others wait, as any contender can; it must not be able to change their order, to
// make two of them hold, or to end a hold.
type neighbour struct {
	w    *world
	rnd  *rand.Rand
	mine []planted
}

// planted is one of the neighbour's znodes.
type planted struct {
	node string
	text string        // its name in the history, without another contender's random id
	due  time.Duration // when it is deleted
}

func newNeighbour(w *world) *neighbour { return &neighbour{w: w, rnd: w.rand(2)} }

// run creates and deletes znodes until ctx ends, and then deletes the rest.
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
		if err := n.w.srv.Delete(p.node); err != nil && !errors.Is(err, zktest.CodeNoNode) { // a client may have broken it
			n.w.violated("the neighbour deletes %s: %v", p.text, err)
		}
		return true
	})
}

// plant creates one znode. One that may be in the way of other contenders is deleted soon, so that they get their turns.
func (n *neighbour) plant() {
	k := n.rnd.IntN(len(n.w.paths))
	dir := n.w.paths[k]
	number, blocks := n.number(dir)
	tail := n.label(n.w.fam[k]) + number
	node := dir + "/" + n.head(dir) + tail
	data := n.data()
	last := upTo(n.rnd, 4*time.Second)
	if blocks {
		last = upTo(n.rnd, 300*time.Millisecond)
	}
	n.w.oracle.noteForeign(node)
	if err := n.w.srv.Create(node, data); err != nil { // for example because there is no such directory
		return
	}
	text := fmt.Sprintf("%s/…%s, named by %d bytes", dir, tail, len(node))
	n.w.note("foreign", "creates %s, with %d bytes, for %v", text, len(data), last)
	n.mine = append(n.mine, planted{node, text, n.w.now() + last})
}

// number draws a sequence number, in the server's form. blocks: it may be lower than those of other contenders.
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
	case 6: // the next ones that the server assigns
		v = next + n.rnd.Int32N(4)
	case 7: // those of existing contenders, and those between them
		v = max(0, next-n.rnd.Int32N(6))
	case 8: // none
		return []string{"99999999999", "-000000000", "12", "lock", "9999999999", "0000000000x"}[n.rnd.IntN(6)], false
	}
	return fmt.Sprintf("%010d", v), v-next < 3
}

// label draws the part of a name that tells the kind of lock, mostly of the path's own kind.
func (n *neighbour) label(fam int) string {
	own := [][]string{{"-lock-", "__lock__"}, {"-__READ__", "-__WRIT__", "__rlock__"}, {"-lease-1-", "-lease-2-", "-lease-1000000-"}}
	if n.rnd.IntN(12) == 0 {
		fam = n.rnd.IntN(len(own))
	}
	return own[fam][n.rnd.IntN(len(own[fam]))]
}

// head draws what comes before the label: sometimes another contender's id, or more bytes than our paths may have.
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
	// These sort before or behind all contenders with random ids, so that two runs have the same order.
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

// noteForeign notes a znode of the neighbour.
func (o *oracle) noteForeign(node string) {
	o.mu.Lock()
	o.foreign[node] = true
	o.mu.Unlock()
}

// isForeign reports whether a znode is the neighbour's.
func (o *oracle) isForeign(node string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.foreign[node]
}

// ours returns the contenders of a directory without the neighbour's. The caller holds mu.
func (o *oracle) ours(dir string) []string {
	return slices.DeleteFunc(o.w.srv.Children(dir), func(name string) bool {
		_, contender := recipe.Parse(name)
		return !contender || o.foreign[dir+"/"+name]
	})
}
