package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/zklock/locker/tests/e2e/history"
	"github.com/zklock/locker/zklock"
)

// worker is one goroutine of one workload.
type worker struct {
	*site
	load   history.Load
	orders Orders
	emit   func(history.Op)
	name   string
	rng    *rand.Rand
	writes int
}

// run cycles until stop is closed; then once more, with success.
func (w *worker) run(stop <-chan struct{}) error {
	for {
		select {
		case <-stop:
			return w.last()
		default:
		}
		if err := w.cycle(w.patience()); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		if w.load == history.Keys {
			w.sleep(keyBeat - time.Duration(time.Now().UnixNano())%keyBeat)
		} else {
			w.sleep(w.upTo(20 * time.Millisecond))
		}
	}
}

// last is the cycle after all was healed: the lock must be had.
func (w *worker) last() error {
	ctx, cancel := context.WithTimeout(context.Background(), restBound)
	defer cancel()
	for {
		op, h, err := w.lock(ctx, false)
		if err != nil {
			return fmt.Errorf("%s: at rest: %w", w.name, err)
		}
		b := watch(w.site, op, h)
		if err := b.release(w, h); err != nil || b.op.Outcome == history.OK {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s: at rest: no hold was released in order within %v: %s", w.name,
				restBound, b.op.Err)
		}
	}
}

func (w *worker) upTo(d time.Duration) time.Duration {
	return time.Duration(w.rng.Int64N(int64(d)))
}

func (w *worker) chance(percent int) bool { return w.rng.IntN(100) < percent }

// sleep is a worker's time to think. Nothing waits for it and no check depends on it.
func (w *worker) sleep(d time.Duration) { time.Sleep(d) }

// patience is how long the worker waits for a lock: usually longer than any fault lasts.
func (w *worker) patience() time.Duration {
	if w.chance(10) {
		return w.upTo(300 * time.Millisecond)
	}
	return restBound
}

// overrun is by how much a call may outlive its context, on a busy machine.
const overrun = 10 * time.Second

// cycle is one acquisition and what is done under it. Its error is something that should not have
// happened.
func (w *worker) cycle(patience time.Duration) error {
	if w.load == history.Election && w.chance(30) {
		if err := w.lookAtLeader(patience); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	try := w.chance(15)
	began := w.beats.Load()
	op, h, err := w.lock(ctx, try)
	if err != nil {
		op.Kind, op.Err = history.Failed, err.Error()
		w.emit(op)
		late := time.Duration(w.beats.Load()-began)*beat - patience
		switch {
		case late > overrun:
			return fmt.Errorf("a call outlived its context by %v in which its process ran: %w",
				late, err)
		case ctx.Err() != nil && errors.Is(err, ctx.Err()), try &&
			(errors.Is(err, zklock.ErrBusy) || errors.Is(err, zklock.ErrUnreachable)):
			return nil
		}
		return fmt.Errorf("a call failed and should have waited: %w", err)
	}
	b := watch(w.site, op, h)
	w.body(op, b.ended, h)
	return b.release(w, h)
}

// lock asks for the workload's lock. The op is filled as far as the call got.
func (w *worker) lock(ctx context.Context, try bool) (op history.Op, h *zklock.Hold, err error) {
	op = history.Op{
		Load: w.load, Kind: history.Hold, ID: w.conf.Client<<32 | int(w.ids.Add(1)),
		Client: w.conf.Client, Worker: w.name,
		Paths: []string{w.path("lock")},
	}
	var take func(context.Context) (context.Context, *zklock.Hold, error)
	switch w.load {
	case history.RW:
		m := w.c.RWMutex(op.Paths[0])
		switch op.Shared = w.chance(60); {
		case op.Shared && try:
			take = m.TryRLock
		case op.Shared:
			take = m.RLock
		case try:
			take = m.TryLock
		default:
			take = m.Lock
		}
	case history.Semaphore:
		m := w.c.Semaphore(op.Paths[0], w.orders.Size)
		op.Permits = 1 + w.rng.IntN(2)
		take = func(ctx context.Context) (context.Context, *zklock.Hold, error) {
			if try {
				return m.TryAcquire(ctx, op.Permits)
			}
			return m.Acquire(ctx, op.Permits)
		}
	case history.Multi:
		all := []string{w.path("a"), w.path("b"), w.path("c")}
		w.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		op.Paths = all[:2+w.rng.IntN(2)]
		m := w.c.MultiLock(op.Paths)
		if take = m.Lock; try {
			take = m.TryLock
		}
	case history.Election:
		e := w.c.Election(op.Paths[0])
		take = func(ctx context.Context) (context.Context, *zklock.Hold, error) {
			return e.Campaign(ctx, []byte(w.name))
		}
	default:
		if w.load == history.Keys {
			op.Paths = []string{w.path(strconv.Itoa(w.rng.IntN(keys)))}
		}
		m := w.c.Mutex(op.Paths[0])
		if take = m.Lock; try {
			take = m.TryLock
		}
	}
	op.Call = history.Now()
	_, h, err = take(context.WithValue(ctx, releaseKey{}, new(error)))
	op.Return = history.Now()
	if err == nil {
		op.Token = int64(h.Token())
	}
	return op, h, err
}

// path is the workload's own path, below the round's root.
func (w *worker) path(name string) string {
	return w.orders.Root + "/" + loadName(w.load) + "/" + name
}

// body is what is done under the lock.
func (w *worker) body(op history.Op, ended <-chan struct{}, h *zklock.Hold) {
	switch w.load {
	case history.Fenced, history.Unfenced:
		w.useStore(h)
		return
	case history.MultiRegister:
		w.useMulti(h)
		return
	}
	holdOn := func(d time.Duration) {
		select {
		case <-ended:
		case <-time.After(d):
		}
	}
	switch {
	case w.chance(5): // long enough to lose it
		holdOn(w.upTo(w.conf.Timeout * 3 / 2))
	case w.chance(40):
		if !w.check(op, h) {
			// cut off: to let go now would not show whether the hold ends in time
			holdOn(2 * w.conf.Timeout)
		}
	default:
		w.sleep(w.upTo(8 * time.Millisecond))
	}
}

// check asks the ensemble whether the lock is ours; false: it did not say.
func (w *worker) check(held history.Op, h *zklock.Hold) bool {
	ctx, cancel := context.WithTimeout(context.Background(), w.conf.Timeout/4)
	defer cancel()
	op := held
	op.Kind, op.Outcome, op.Call = history.Check, "", history.Now()
	err := h.Check(ctx)
	op.Return = history.Now()
	if err == nil { // an error says nothing about the time before it
		w.emit(op)
	}
	return err == nil
}

// lookAtLeader asks who leads.
func (w *worker) lookAtLeader(patience time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	op := history.Op{
		Load: w.load, Kind: history.Leader, Client: w.conf.Client, Worker: w.name,
		Paths: []string{w.path("lock")},
		Call:  history.Now(),
	}
	l, err := w.c.Election(op.Paths[0]).Leader(ctx)
	op.Return, op.Token = history.Now(), int64(l.Token)
	switch {
	case err == nil, errors.Is(err, zklock.ErrNoLeader):
		w.emit(op)
		return nil
	case ctx.Err() != nil && errors.Is(err, ctx.Err()), errors.Is(err, zklock.ErrLost):
		return nil
	}
	return fmt.Errorf("asking for the leader: %w", err)
}
