package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zklock"
)

// stage is the environment of both runs: an ensemble, and a path in its tree that is ours alone.
type stage struct {
	connect string
	opts    []zklock.Option
	client  *zklock.Client // the stage's own, for setting up, reading the result, and tidying up
	root    string
	timeout time.Duration // of sessions, as the ensemble granted it
}

// openStage connects and creates the root. The name is random, so that several users can share one
// ensemble.
func openStage(ctx context.Context, connect string, opts []zklock.Option) (*stage, error) {
	dial, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	client, err := zklock.Dial(dial, connect, opts...)
	if err != nil {
		return nil, err
	}
	st := &stage{connect: connect, opts: opts, client: client,
		root: "/zklock-quickstart-" + rand.Text()[:8]}
	s, err := client.Session(ctx)
	if err == nil {
		st.timeout = s.Timeout()
		err = s.CreateAll(ctx, st.root, nil, session.Persistent, session.WorldACL())
	}
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return st, nil
}

// count lets the workers make their increments and returns the counter.
func (st *stage) count(ctx context.Context, c config, locked bool, out io.Writer) (int, error) {
	counter := st.root + "/counter-without-lock"
	lock := ""
	if locked {
		counter, lock = st.root+"/counter-with-lock", st.root+"/lock"
	}
	s, err := st.client.Session(ctx)
	if err != nil {
		return 0, err
	}
	if err := s.CreateAll(ctx, counter, []byte("0"), session.Persistent,
		session.WorldACL()); err != nil {
		return 0, err
	}

	// One worker's failure ends the whole run.
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	j, b := newJob(c.total()), newBoard(out)
	workers := make([]*worker, c.workers)
	for i := range workers {
		workers[i] = &worker{name: "worker-" + strconv.Itoa(i+1), counter: counter, lock: lock,
			pause: c.pause, job: j, board: b}
	}
	together := func(do func(*worker) error) {
		var all sync.WaitGroup
		for _, w := range workers {
			all.Go(func() {
				if err := do(w); err != nil {
					stop(fmt.Errorf("%s: %w", w.name, err))
				}
			})
		}
		all.Wait()
	}
	// no worker finishes before the last one begins
	together(func(w *worker) error { return w.dial(ctx, st) })
	if ctx.Err() == nil {
		together(func(w *worker) error { return w.work(ctx) })
	}
	together((*worker).close)
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}

	data, _, err := s.Get(ctx, counter)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(data))
}

// errTidy says that znodes of ours are left on the ensemble.
var errTidy = errors.New("could not tidy up")

// close removes everything below the root and disconnects. ctx may be over.
func (st *stage) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	s, err := st.client.Session(ctx)
	if err == nil {
		err = remove(ctx, s, st.root)
	}
	if err != nil {
		err = fmt.Errorf("%w: %s: %w", errTidy, st.root, err)
	}
	return errors.Join(err, st.client.Close())
}

// remove deletes a znode and all below it. A znode deleted meanwhile, for instance by the ensemble
// with an expired session, is no error.
func remove(ctx context.Context, s session.Session, path string) error {
	names, _, err := s.List(ctx, path)
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := remove(ctx, s, path+"/"+name); err != nil {
			return err
		}
	}
	if err := s.Delete(ctx, path, -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	return nil
}
