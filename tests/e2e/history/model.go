package history

import (
	"fmt"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// step is one operation on one path, which a model accepts or not.
type step struct {
	what    string // lock, unlock, lose, check, leader; write, maybe, read
	hold    int
	token   int64
	permits int

	value, prev string
	worker      string
}

// lockState is the state of a lock: its holders, their permits, and the latest token.
type lockState struct {
	holders string // ids, each with its permits ("17:2"); sorted, so that states compare
	used    int    // permits in use; a mutex and a writer use them all
	token   int64
}

// lockModel is the model of a lock of size permits; for a mutex and an election size is 1. A writer
// takes all permits of a read/write lock, a reader one.
func lockModel(size int) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return lockState{} },
		Step: func(state, input, _ any) (bool, any) {
			return state.(lockState).take(input.(step), size)
		},
		DescribeOperation: func(input, _ any) string {
			s := input.(step)
			return fmt.Sprintf("%s: hold %d, token %d (%s)", s.what, s.hold, s.token, s.worker)
		},
		DescribeState: func(state any) string {
			return state.(lockState).String()
		},
	}
}

func (s lockState) take(in step, size int) (bool, lockState) {
	held := s.list()
	mine := slices.IndexFunc(held, func(h holder) bool { return h.id == in.hold })
	switch in.what {
	case "lock":
		if in.token <= s.token || s.used+in.permits > size {
			return false, s
		}
		held = append(held, holder{in.hold, in.permits})
		return true, newLockState(held, in.token)
	case "unlock": // returned nil: the lock was held until then
		if mine < 0 {
			return false, s
		}
		return true, newLockState(slices.Delete(held, mine, mine+1), s.token)
	case "lose":
		// also an Unlock without an answer: the ensemble deletes the znode at some time, or has
		// deleted it
		if mine < 0 {
			return true, s
		}
		return true, newLockState(slices.Delete(held, mine, mine+1), s.token)
	case "check":
		return mine >= 0, s
	case "leader":
		switch {
		case in.token == 0:
			return s.used == 0, s
		case s.used > 0:
			return in.token == s.token, s
		default: // the next candidate is first in line already, and its Campaign is about to return
			return in.token > s.token, s
		}
	}
	panic("history: no such step: " + in.what)
}

type holder struct{ id, permits int }

func (s lockState) list() []holder {
	var held []holder
	for _, f := range strings.Fields(s.holders) {
		id, permits, _ := strings.Cut(f, ":")
		held = append(held, holder{number(id), number(permits)})
	}
	return held
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err) // written by newLockState
	}
	return n
}

// String is a state for a reader: "hold 17 (permits: 2); highest token 4".
func (s lockState) String() string {
	words := []string{}
	for _, h := range s.list() {
		words = append(words, fmt.Sprintf("hold %d (permits: %d)", h.id, h.permits))
	}
	if len(words) == 0 {
		words = []string{"no hold"}
	}
	return fmt.Sprintf("%s; highest token %d", strings.Join(words, ", "), s.token)
}

func newLockState(held []holder, token int64) lockState {
	sort.Slice(held, func(i, j int) bool { return held[i].id < held[j].id })
	s := lockState{token: token}
	for _, h := range held {
		s.holders += fmt.Sprintf("%d:%d ", h.id, h.permits)
		s.used += h.permits
	}
	return s
}

// registerState is the state of a register: its value, and the greatest token that wrote or read
// it.
type registerState struct {
	value string
	token int64
}

// registerModel is the model of a register that only its lock's holder may write, and where each
// write replaces the value that the writer has read: one that replaces another value has undone an
// acknowledged write.
var registerModel = porcupine.Model{
	Init: func() any { return registerState{} },
	Step: func(state, input, _ any) (bool, any) {
		s, in := state.(registerState), input.(step)
		switch in.what {
		case "write":
			return in.prev == s.value && in.token >= s.token, registerState{in.value, in.token}
		case "maybe": // without an answer: made at any time at which the model allows it, or never
			if in.prev == s.value && in.token >= s.token {
				return true, registerState{in.value, in.token}
			}
			return true, s
		case "read":
			return in.value == s.value && in.token >= s.token,
				registerState{s.value, max(s.token, in.token)}
		}
		panic("history: no such step: " + in.what)
	},
	DescribeOperation: func(input, _ any) string {
		s := input.(step)
		return fmt.Sprintf("%s %s after %s, token %d (%s)", s.what, s.value, s.prev, s.token,
			s.worker)
	},
	DescribeState: func(state any) string {
		s := state.(registerState)
		return fmt.Sprintf("value %q, highest token %d", s.value, s.token)
	},
}

// Linearize checks every path's operations against its model and returns what it could not explain,
// one line for each. A check that is not done within the given time counts as failed.
func (h *History) Linearize(each time.Duration) (bad []string) {
	for _, p := range h.parts() {
		switch porcupine.CheckOperationsTimeout(p.model, p.ops, each) {
		case porcupine.Ok:
		case porcupine.Illegal:
			bad = append(bad,
				fmt.Sprintf("%s %s: no order of its %d operations explains what they returned%s",
					p.load, p.path, len(p.ops), p.stuck()))
		default:
			bad = append(bad,
				fmt.Sprintf("%s %s: %d operations not checked within %v", p.load, p.path,
					len(p.ops), each))
		}
	}
	return bad
}

// Draw writes porcupine's picture of each path's operations, and of the order that explains them,
// to dir: pages for a browser, named after the workload and the path. Each check may take the given
// time.
func (h *History) Draw(dir string, each time.Duration) error {
	for _, p := range h.parts() {
		_, info := porcupine.CheckOperationsVerbose(p.model, p.ops, each)
		name := strings.ReplaceAll(string(p.load), " ", "-") + "-" +
			p.path[strings.LastIndexByte(p.path, '/')+1:] + ".html"
		if err := porcupine.VisualizePath(p.model, info, filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("history: picture of %s: %w", p.path, err)
		}
	}
	return nil
}

// part is the operations on one path.
type part struct {
	load  Load
	path  string
	model porcupine.Model
	ops   []porcupine.Operation
}

func (p *part) add(client int, call, ret Stamp, s step) {
	p.ops = append(p.ops,
		porcupine.Operation{ClientId: client, Input: s, Call: int64(call), Return: int64(ret)})
}

// stuck says at which operation the longest explanation ends.
func (p *part) stuck() string {
	_, info := porcupine.CheckOperationsVerbose(p.model, p.ops, 5*time.Second)
	longest := 0
	for _, parts := range info.PartialLinearizationsOperations() {
		for _, l := range parts {
			longest = max(longest, len(l))
		}
	}
	for _, parts := range info.PartialLinearizationsOperations() {
		for _, l := range parts {
			if len(l) != longest || longest == 0 {
				continue
			}
			var tail []string
			for _, o := range l[max(0, len(l)-4):] {
				tail = append(tail, p.model.DescribeOperation(o.Input, nil))
			}
			return ": the longest explanation ends with " + strings.Join(tail, "; ")
		}
	}
	return ""
}

// parts sorts the operations by path.
func (h *History) parts() []*part {
	byPath := map[string]*part{}
	var all []*part
	at := func(o *Op, path string, model porcupine.Model) *part {
		p := byPath[path]
		if p == nil {
			p = &part{load: o.Load, path: path, model: model}
			byPath[path] = p
			all = append(all, p)
		}
		return p
	}
	for i := range h.Ops {
		o := &h.Ops[i]
		for _, path := range o.Paths {
			switch o.Kind {
			case Hold, Check, Leader:
				h.addLock(at(o, path, lockModel(h.permits(o.Load))), o)
			case Write, Read:
				if o.Load != Unfenced { // which may lose writes: Losses counts them
					addAccess(at(o, path, registerModel), o)
				}
			}
		}
	}
	return all
}

// manyReaders is more than there are workers.
const manyReaders = 1 << 20

// permits is how many permits a lock of a workload has.
func (h *History) permits(l Load) int {
	switch l {
	case Semaphore:
		return h.Size
	case RW:
		return manyReaders
	}
	return 1
}

// takes is how many of them an operation takes.
func (h *History) takes(o *Op) int {
	switch {
	case o.Load == Semaphore:
		return o.Permits
	case o.Shared:
		return 1
	}
	return h.permits(o.Load)
}

func (h *History) addLock(p *part, o *Op) {
	s := step{hold: o.ID, token: o.Token, permits: h.takes(o), worker: o.Worker}
	with := func(what string) step { s.what = what; return s }
	switch o.Kind {
	case Check:
		p.add(o.Client, o.Call, o.Return, with("check"))
		return
	case Leader:
		p.add(o.Client, o.Call, o.Return, with("leader"))
		return
	}
	p.add(o.Client, o.Call, o.Return, with("lock"))
	switch o.Outcome {
	case OK:
		p.add(o.Client, o.Release, o.Released, with("unlock"))
	default:
		// from the latest instant at which it was certainly held: the znode may go long after the
		// holder has given the lock up
		from := o.Sure
		if from == 0 { // never, since Lock returned: the process was stopped just then
			from = o.Call
		}
		p.add(o.Client, from, Forever, with("lose"))
	}
}

func addAccess(p *part, o *Op) {
	s := step{token: o.Token, value: o.Value, prev: o.Prev, worker: o.Worker}
	switch {
	case o.Kind == Read:
		s.what = "read"
		p.add(o.Client, o.Call, o.Return, s)
	case o.Outcome == OK:
		s.what = "write"
		p.add(o.Client, o.Call, o.Return, s)
	case o.Outcome == Unknown:
		s.what = "maybe"
		p.add(o.Client, o.Call, Forever, s)
	}
}
