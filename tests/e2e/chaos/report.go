package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/internal/unsealed"
	"github.com/zklock/locker/tests/e2e/history"
	"github.com/zklock/locker/tests/locktest"
)

// Report is what came of one round.
type Report struct {
	Seed     uint64
	Round    int
	Problems []string // empty: all is well

	// Rollbacks are acknowledged writes, made without any lock, that ZooKeeper lost, and what its
	// servers disagree on for good. With any, the round proves nothing, and the ensemble is of no
	// more use.
	Rollbacks []string

	history.Figures
	Faults int
	// writes of the register that nobody guards: reported, and no problem
	UnfencedLosses int
	Rest           time.Duration // from when all was healed until nothing was left
	Watches        int64         // at the servers, at rest; -1: they don't tell
	Goroutines     int           // of all processes, at rest
	Heap           uint64        // bytes, of all processes, at rest
	// the file that the history was written to, when there are problems
	History string
}

func (p *Report) problem(err error) {
	if err != nil {
		p.Problems = append(p.Problems, strings.Split(err.Error(), "\n")...)
	}
}

// Void reports that the round proves nothing, whatever problems it had.
func (p *Report) Void() bool { return len(p.Rollbacks) > 0 }

// Total is the number of cycles of all workloads.
func (p *Report) Total() (n int) {
	for _, c := range p.Cycles {
		n += c
	}
	return n
}

// String says it in a few lines.
func (p *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "round %d: %d cycles (", p.Round, p.Total())
	for i, l := range history.Loads {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s %d", l, p.Cycles[l])
	}
	fmt.Fprintf(&b,
		"), %d faults, %d holds lost, %d attempts failed, %d outcomes unknown, %d late writes refused\n",
		p.Faults, p.Lost, p.Failed, p.Unknown, p.Refused)
	fmt.Fprintf(&b,
		"  at rest after %v: %d watches, %d goroutines, %d KB heap; a context ended at most %v after SafeUntil; %d holds of processes that did not run\n",
		p.Rest.Round(time.Millisecond), p.Watches, p.Goroutines, p.Heap>>10, p.Late, p.Cut)
	fmt.Fprintf(&b,
		"  the unfenced register lost %d acknowledged writes; the others 0 unless said below", p.UnfencedLosses)
	for _, s := range p.Rollbacks {
		b.WriteString("\n  ZooKeeper itself failed, so that this round proves nothing: " + s)
	}
	for _, s := range p.Problems {
		b.WriteString("\n  PROBLEM: " + s)
	}
	if p.History != "" {
		b.WriteString("\n  history: " + p.History)
	}
	return b.String()
}

// loadName is a workload as part of a path.
func loadName(l history.Load) string { return strings.ReplaceAll(string(l), " ", "-") }

// opBound is how long a step of the inspector's may take, on a healthy ensemble and a busy machine.
const opBound = time.Minute

func (r *Run) inspect(do func(ctx context.Context, s *session.Session) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), opBound)
	defer cancel()
	for {
		s, err := unsealed.Session(ctx, r.inspector)
		if err == nil {
			err = do(ctx, s)
		}
		if err == nil || ctx.Err() != nil || !errors.Is(err, session.ErrLost) &&
			!errors.Is(err, session.ErrUnknownOutcome) {
			return err
		} // else again, in the next session
	}
}

// registerPath is the znode that is written through Hold.Multi.
func registerPath(o Orders) string {
	return o.Root + "/" + loadName(history.MultiRegister) + "/register"
}

// prepare makes what a round needs.
func (r *Run) prepare(o Orders) error {
	r.store.forget()
	return r.inspect(func(ctx context.Context, s *session.Session) error {
		err := s.CreateAll(ctx, registerPath(o), nil, session.Persistent, session.WorldACL())
		if errors.Is(err, zk.ErrNodeExists) {
			return nil
		}
		return err
	})
}

// atRest waits until no contender and no watch is left, and reads the registers for the last time.
func (r *Run) atRest(o Orders, rep *Report) error {
	var locks []string
	for _, l := range o.Loads {
		names := []string{"lock"}
		if l == history.Multi {
			names = []string{"a", "b", "c"}
		}
		if l == history.Keys {
			names = nil
			for i := range keys {
				names = append(names, strconv.Itoa(i))
			}
		}
		for _, n := range names {
			locks = append(locks, o.Root+"/"+loadName(l)+"/"+n)
		}
	}
	if err := until(func() error { return r.empty(locks) }); err != nil {
		return err
	}
	if rep.Watches = -1; r.watched >= 0 {
		err := until(func() (err error) {
			rep.Watches, err = r.conf.Ensemble.Watches()
			if err == nil && rep.Watches > r.watched {
				err = fmt.Errorf("the servers keep %d watches, and kept %d before the run",
					rep.Watches, r.watched)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	for _, p := range r.peers {
		s, err := p.stats()
		if err != nil {
			return err
		}
		if p.process != nil || rep.Goroutines == 0 {
			rep.Goroutines += s.Goroutines
			rep.Heap += s.Heap
		}
	}
	return r.lastReads(o)
}

// until calls check until it returns nil, for a minute at most.
func until(check func() error) error {
	var err error
	for end := time.Now().Add(opBound); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = check(); err == nil {
			return nil
		}
	}
	return fmt.Errorf("%v after everything was healed: %w", opBound, err)
}

func (r *Run) empty(locks []string) error {
	for _, path := range locks {
		ctx, cancel := context.WithTimeout(context.Background(), opBound)
		line, err := locktest.Queue(ctx, r.inspector, path)
		cancel()
		if err != nil {
			return err
		}
		if len(line) > 0 {
			return fmt.Errorf("%d contenders are left at %s: %+v", len(line), path, line[0])
		}
	}
	return nil
}

// lastReads reads what the registers hold in the end.
func (r *Run) lastReads(o Orders) error {
	const noToken = 1<<63 - 1 // greater than all tokens: the last read must see the last write
	for _, l := range o.Loads {
		op := history.Op{Load: l, Kind: history.Read, Worker: "the last reader", Token: noToken,
			Call: history.Now(), Outcome: history.OK}
		switch l {
		case history.Fenced:
			op.Paths = []string{o.Root + "/" + loadName(l) + "/register"}
			op.Value = r.store.Do(Access{Register: op.Paths[0]}).Value
		case history.MultiRegister:
			op.Paths = []string{registerPath(o)}
			err := r.inspect(func(ctx context.Context, s *session.Session) error {
				if err := s.Sync(ctx, op.Paths[0]); err != nil {
					return err
				}
				data, _, err := s.Get(ctx, op.Paths[0])
				op.Value = string(data)
				return err
			})
			if err != nil {
				return err
			}
		default:
			continue
		}
		op.Return = history.Now()
		r.collect(op)
	}
	return nil
}

// linearizeBound is how long porcupine may take for one path: it needs a small part of it.
const linearizeBound = 2 * time.Minute

// mostLate is how late a context may end in a process that runs, since goroutines on a busy machine
// run late: far more than was ever seen, and far less than the error of a wrong lease.
const mostLate = 250 * time.Millisecond

// check checks the round's history and keeps it in a file if something is wrong.
func (r *Run) check(rep *Report) {
	r.mu.Lock()
	h := &history.History{Size: permits, Ops: r.ops, Stops: r.stops}
	rep.Faults = r.faults
	r.mu.Unlock()
	rep.Figures = h.Count()
	rep.UnfencedLosses = h.Losses(history.Unfenced)
	rep.Problems = append(rep.Problems, h.Overlaps()...)
	rep.Problems = append(rep.Problems, h.Linearize(linearizeBound)...)
	if n := h.Losses(history.Fenced); n > 0 { // porcupine has found these too; this is their number
		rep.Problems = append(rep.Problems,
			fmt.Sprintf("%s: %d acknowledged writes were lost", history.Fenced, n))
	}
	if rep.Late > mostLate {
		rep.Problems = append(rep.Problems,
			fmt.Sprintf("a context had not ended %v after its SafeUntil, in a process that ran",
				rep.Late))
	}
	for _, l := range r.conf.Loads {
		if rep.Cycles[l] == 0 {
			rep.Problems = append(rep.Problems, fmt.Sprintf("%s: no cycle at all", l))
		}
	}
	if r.conf.Pictures != "" {
		rep.problem(h.Draw(r.conf.Pictures, linearizeBound))
	}
	if len(rep.Problems) > 0 || r.conf.Keep {
		rep.problem(r.keep(h, rep))
	}
}

// keep writes the history to a file, one line for each operation.
func (r *Run) keep(h *history.History, rep *Report) error {
	f, err := os.CreateTemp("",
		fmt.Sprintf("zklock-chaos-seed%d-round%d-*.jsonl", rep.Seed, rep.Round))
	if err != nil {
		return err
	}
	rep.History = f.Name()
	w := bufio.NewWriter(f)
	lines := json.NewEncoder(w)
	for _, op := range h.Ops {
		err = errors.Join(err, lines.Encode(op))
	}
	for _, s := range h.Stops {
		err = errors.Join(err, lines.Encode(s))
	}
	return errors.Join(err, w.Flush(), f.Close())
}

// tidy removes the round's znodes, so that a long run does not fill the ensemble.
func (r *Run) tidy(o Orders) error {
	return r.inspect(func(ctx context.Context, s *session.Session) error {
		return remove(ctx, s, o.Root)
	})
}

func remove(ctx context.Context, s *session.Session, path string) error {
	names, _, err := s.List(ctx, path)
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := remove(ctx, s, path+"/"+n); err != nil {
			return err
		}
	}
	if err := s.Delete(ctx, path, -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	return nil
}
