package main

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/zklock/locker/zklock"
)

// worker is one client of the ensemble, as one process of a fleet would be.
type worker struct {
	name    string
	counter string // znode
	lock    string // path of the lock; "" to work without it
	pause   time.Duration
	job     *job
	board   *board

	client *zklock.Client
	net    network
}

// errCrashed ends the work of the worker that crashes. It is part of the demonstration and no
// failure.
var errCrashed = errors.New("crashed")

// dial connects.
func (w *worker) dial(ctx context.Context, st *stage) (err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	opts := append([]zklock.Option{zklock.WithDialer(w.net.dial),
		zklock.WithHooks(w.board.hooks(w))}, st.opts...)
	w.client, err = zklock.Dial(ctx, st.connect, opts...)
	return err
}

// close disconnects, if dial had succeeded.
func (w *worker) close() error {
	if w.client == nil {
		return nil
	}
	return w.client.Close()
}

// work makes increments until none is left.
func (w *worker) work(ctx context.Context) (err error) {
	for w.job.take() {
		if w.lock == "" {
			err = w.unlocked(ctx)
		} else {
			err = w.locked(ctx)
		}
		if errors.Is(err, errCrashed) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// unlocked makes one increment without protection.
func (w *worker) unlocked(ctx context.Context) error {
	from, err := w.increment(ctx)
	if err == nil {
		w.board.wrote(w.name, from)
	}
	return err
}

// locked makes one increment under the lock.
func (w *worker) locked(ctx context.Context) (err error) {
	mutex := w.client.Mutex(w.lock, zklock.WithOwner(w.name))
	work, hold, err := mutex.Lock(ctx)
	if err != nil {
		return err
	}
	if w.job.crashNow() {
		return w.crash(ctx, hold)
	}
	defer func() { err = errors.Join(err, hold.Unlock()) }()

	// work ends when the lock is lost, and the write is then not made; Ctrl-C ends it as well.
	from, err := w.increment(work)
	if err == nil {
		w.board.counted(w.name, from, hold.Token())
	}
	return err
}

// increment reads, waits and writes. It writes whatever the znode's version is by now: ZooKeeper
// could refuse a write to a counter that has changed since it was read, but here only the lock
// shall separate the workers.
func (w *worker) increment(ctx context.Context) (from int, err error) {
	s, err := w.client.Session(ctx) // the session of the lock: no second connection is needed
	if err != nil {
		return 0, err
	}
	data, _, err := s.Get(ctx, w.counter)
	if err != nil {
		return 0, err
	}
	if from, err = strconv.Atoi(string(data)); err != nil {
		return 0, err
	}
	if err := sleep(ctx, w.pause); err != nil {
		return 0, err
	}
	_, err = s.Set(ctx, w.counter, []byte(strconv.Itoa(from+1)), -1)
	return from, err
}

// crash cuts the worker's network after it has taken the lock and before it has written, and never
// calls Unlock. The process goes on, to show that it learns of the loss before another worker has
// the lock.
func (w *worker) crash(ctx context.Context, hold *zklock.Hold) error {
	w.board.crashed(w.name, hold.Token())
	if err := w.net.cut(); err != nil {
		return err
	}
	w.job.giveBack() // nothing was written
	select {
	case <-w.board.recovered: // until then the client stays open: closing it would release the lock
		return errCrashed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// sleep waits for d, or less when ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// job is the increments to make. Workers take them one at a time; one that fails before its write
// returns its increment, so that in the end there are exactly as many writes as increments.
type job struct {
	crashAt int // the increment, counted from 0, whose worker crashes

	mu    sync.Mutex // guards the fields below
	left  int        // not taken
	begun int        // begun with the lock in hand
}

// newJob places the crash after the first third, so that there are increments before it and after
// it.
func newJob(total int) *job { return &job{left: total, crashAt: total / 3} }

// take assigns an increment; false when there is none left.
func (j *job) take() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.left == 0 {
		return false
	}
	j.left--
	return true
}

// giveBack returns an increment that was taken and not made.
func (j *job) giveBack() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.left++
}

// crashNow reports to a holder that is about to make its increment whether its worker crashes here.
// One does.
func (j *job) crashNow() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.begun++
	return j.begun == j.crashAt+1
}
