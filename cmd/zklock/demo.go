package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/trusted"
	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

const (
	demoTick    = 500 * time.Millisecond
	demoTimeout = 3 * time.Second        // of the sessions
	demoWork    = 400 * time.Millisecond // under the lock
	demoBound   = time.Minute            // of the whole demo
)

func (a *app) demoCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "demo [flags]",
		GroupID: groupRest,
		Short:   "Show a lock at work: contention, and a crash of the holder",
		Long: `Show three workers that want one lock, each a client of its own. One of them crashes while it holds the lock: by its own
clock it knows that the lock is lost before the next worker has it. The demo takes some seconds and needs no ensemble: the
server is inside this program. With --zk (not ` + envZK + `) it uses your ensemble, and removes its znodes at the end.`,
		Example: "  zklock demo\n  zklock demo --zk localhost:2181",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.interruptible(func(ctx context.Context) error {
				ctx, cancel := context.WithTimeout(ctx, demoBound)
				defer cancel()
				return a.demo(ctx)
			})
		},
	}
}

// demo runs the demonstration.
func (a *app) demo(ctx context.Context) (err error) {
	d := &demo{out: a.out, began: time.Now()}
	a.conn.timeout = demoTimeout
	if a.conn.zk == "" {
		server, err := zktest.Start(zktest.WithTick(demoTick))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, server.Close()) }()
		a.conn = connFlags{zk: server.Addr(), patience: a.conn.patience, timeout: demoTimeout, tick: demoTick}
		d.say("", "using a ZooKeeper server inside this program, at %s", server.Addr())
	}
	admin, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, admin.Close()) }()
	d.path = fmt.Sprintf("/zklock-demo-%x", time.Now().UnixNano())
	defer func() { err = errors.Join(err, removeDemo(admin, d.path)) }()
	var workers sync.WaitGroup
	failed := make([]error, 3)
	d.say("", "3 workers want %s, again and again; worker-2 will crash", d.path)
	for i := range failed {
		w := &demoWorker{demo: d, name: fmt.Sprintf("worker-%d", i+1), crashes: i == 1}
		workers.Go(func() { failed[i] = w.work(ctx, a) })
	}
	workers.Wait()
	if err := errors.Join(failed...); err != nil {
		return err
	}
	d.say("", "%d turns, never more than %d at once; worker-2's hold had ended by its own clock before the next one had the lock",
		d.turns, d.most)
	if d.most != 1 || !d.known {
		return errors.New("two workers held the lock at once")
	}
	return nil
}

// removeDemo deletes what the demo made.
func removeDemo(c *zklock.Client, path string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	s, err := c.Session(ctx)
	if err != nil {
		return err
	}
	if err := s.Delete(ctx, path, -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	return nil
}

// demo is the state that the workers share.
type demo struct {
	out   io.Writer
	path  string
	began time.Time

	mu        sync.Mutex     // guards the fields below, and out
	holds     []*zklock.Hold // all holds of the demo
	most      int            // the most holds that had not ended, by their own clocks, at one time
	turns     int
	crashed   *zklock.Hold
	cut       time.Time // when the crash happened
	recovered time.Time // when the next worker had the lock
	known     bool      // the crashed worker's hold had ended by then
}

func (d *demo) say(who, format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fmt.Fprintf(d.out, "%7.3fs  %-9s %s\n", time.Since(d.began).Seconds(), who, clean(fmt.Sprintf(format, args...)))
}

// enter counts a hold, and those that have not ended by their own clocks; first: it is the first after the crash.
func (d *demo) enter(hold *zklock.Hold) (after time.Duration, first bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.holds = append(d.holds, hold)
	inside := 0
	for _, h := range d.holds {
		if h.Err() == nil {
			inside++
		}
	}
	d.turns++
	d.most = max(d.most, inside)
	if d.crashed == nil || !d.recovered.IsZero() {
		return 0, false
	}
	d.recovered, d.known = time.Now(), d.crashed.Err() != nil
	return d.recovered.Sub(d.cut), true
}

// over reports whether the workers have recovered from the crash.
func (d *demo) over() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.recovered.IsZero()
}

type demoWorker struct {
	*demo
	name    string
	crashes bool
}

func (w *demoWorker) work(ctx context.Context, a *app) (err error) {
	net := &network{}
	opts := []zklock.Option{zklock.WithDialer(net.dial), zklock.WithHooks(zklock.Hooks{Queued: func(q zklock.QueuedInfo) {
		if q.Who != "" {
			w.say(w.name, "waits %s in line behind %s", ordinal(q.Ahead+1), q.Who)
		}
	}})}
	c, err := a.dial(ctx, opts...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	m := c.Mutex(w.path, zklock.WithOwner(w.name))
	for turn := 1; turn <= 2 || !w.over(); turn++ {
		hold, err := m.Lock(ctx)
		if err != nil {
			return err
		}
		after, first := w.enter(hold)
		if first {
			w.say(w.name, "RECOVERED: has the lock, token %d, %v after the crash", hold.Token(), after.Round(time.Millisecond))
		} else {
			w.say(w.name, "has the lock, token %d", hold.Token())
		}
		if w.crashes {
			return w.crash(ctx, net, hold)
		}
		if err := pause(ctx, demoWork); err != nil {
			return err
		}
		switch err := hold.Unlock(ctx); {
		case errors.Is(err, zklock.ErrLost):
			w.say(w.name, "has lost the lock: this machine is busy, and %v is short. %v", demoTimeout, hold.Err())
		case err != nil:
			return err
		}
	}
	w.say(w.name, "is done")
	return nil
}

// crash cuts the worker off, as a crash would, and waits until the worker knows that the lock is lost.
func (w *demoWorker) crash(ctx context.Context, net *network, hold *zklock.Hold) error {
	w.say(w.name, "CRASHES with the lock in hand: its network is cut")
	w.mu.Lock()
	w.cut, w.demo.crashed = time.Now(), hold
	w.mu.Unlock()
	net.cut()
	select {
	case <-hold.Context().Done():
	case <-ctx.Done():
		return ctx.Err()
	}
	w.say(w.name, "knows by itself that the lock is lost: %v", hold.Err())
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return session.Waited(ctx, trusted.Caller{}, errors.New("at work"))
	}
}
