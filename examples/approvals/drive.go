package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zklock"
)

// drive is one run: instances, proxy, clients, and faults.
type drive struct {
	config
	stage  *stage
	orders orders
	log    *timeline

	store *store
	fleet fleet
	load  *load
}

// run returns the books of a run. All that it has started has ended when it returns.
func (d *drive) run(ctx context.Context, name string) (b books, err error) {
	d.orders.Tables = d.stage.id + "_" + name
	if d.store, err = openStore(d.orders.Database, d.orders.Tables); err != nil {
		return b, err
	}
	defer func() {
		tidy, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		err = errors.Join(err, d.store.drop(tidy), d.store.close())
	}()
	if err := d.store.create(ctx); err != nil {
		return b, err
	}
	if d.fleet, err = startFleet(ctx, d.orders, d.instances); err != nil {
		return b, err
	}
	err = d.drive(ctx, name)
	err = errors.Join(err, d.fleet.stop())
	if err != nil {
		return b, err
	}
	if b, err = audit(ctx, d.store, d.load, d.orders.Lock); err != nil {
		return b, err
	}
	for _, m := range d.fleet {
		stale, _ := m.refused()
		b.stale += len(stale)
		b.lost += m.lost
	}
	return b, nil
}

// drive runs the clients and the faults.
func (d *drive) drive(ctx context.Context, name string) (err error) {
	p, err := startProxy(d.fleet)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	d.load = newLoad(p.url(), d.stage.id+"-"+name, d.config)
	d.load.reserved = d.orders.Lock
	d.log.say("%d instances behind a proxy at %s; %d clients ask for %d updates of %d keys",
		d.instances, p.url(), d.clients, d.updates, d.keys)

	// What fails first ends the other, too.
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var both sync.WaitGroup
	both.Go(func() {
		if err := d.load.run(ctx); err != nil {
			fail(err)
		}
	})
	both.Go(func() {
		if err := d.watch(ctx); err != nil {
			fail(err)
		}
	})
	both.Wait()
	return context.Cause(ctx)
}

// watch reports the clients' progress, and makes faults on the way if there is a lock.
func (d *drive) watch(ctx context.Context) error {
	for quarter := range 4 {
		n := (quarter + 1) * d.updates / 4
		select {
		case <-d.load.after(n):
			d.log.say("%d updates accepted", n)
		case <-ctx.Done():
			return nil // the cause of the end is reported elsewhere
		}
		if !d.orders.Lock {
			continue
		}
		var err error
		switch quarter {
		case 0:
			err = d.killOne(d.fleet[1])
		case 1:
			err = d.freezeOne(ctx, d.fleet[2])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// killOne makes an instance crash at any point of its work.
func (d *drive) killOne(m *member) error {
	d.log.say("%s KILLED; what it was doing is done or not, and its locks stay taken until its session ends", m.name)
	return m.kill()
}

// freezeOne stops an instance right before a write that it is entitled to, until others have done the same work, and
// then lets it make that write. Nothing here depends on time: each step waits for its condition.
func (d *drive) freezeOne(ctx context.Context, m *member) error {
	if err := m.tell(closeGate); err != nil {
		return err
	}
	if _, err := hear(ctx, m, m.closed, "its gate to be closed"); err != nil {
		return err
	}
	// One update is sure to be there; those of other clients may be, too.
	ctx, cancel := context.WithTimeoutCause(ctx, updateBound, fmt.Errorf("%s: could not be frozen and thawed within %v", m.name, updateBound))
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	frozen := make(chan struct{})
	var reserved sync.WaitGroup
	reserved.Go(func() {
		if err := d.load.insistAt(ctx, m.addr, frozen); err != nil {
			fail(err)
		}
	})
	err := d.freezeAndThaw(ctx, m, sync.OnceFunc(func() { close(frozen) }))
	if err != nil {
		fail(err)
	}
	reserved.Wait()
	if err == nil {
		err = context.Cause(ctx)
	}
	return err
}

func (d *drive) freezeAndThaw(ctx context.Context, m *member, frozen func()) (err error) {
	defer frozen()
	late, err := hear(ctx, m, m.ready, "a write to stop at")
	if err != nil {
		return err
	}
	if len(late) == 0 {
		return fmt.Errorf("%s: nothing to write when it was to be frozen", m.name)
	}
	if err := m.freeze(); err != nil {
		return err
	}
	began := time.Now()
	defer func() {
		if err != nil { // so that it can end by itself
			err = errors.Join(err, m.thaw())
		}
	}()
	frozen()
	d.log.say("%s FROZEN with %d writes decided on, and its last look at their locks taken", m.name, len(late))
	newer := make([]row, len(late))
	for i, w := range late {
		if err := d.stage.awaitGone(ctx, lockPath(d.orders.Root, w.Key), w.Node); err != nil {
			return err
		}
		if i == 0 {
			d.log.say("its session is over, %.1fs later: its locks are free", time.Since(began).Seconds())
		}
		if newer[i], err = d.awaitNewer(ctx, w); err != nil {
			return err
		}
	}
	d.log.say("others have taken all of them; %s GOES ON, and writes", m.name)
	if err := errors.Join(m.thaw(), m.tell(openGate)); err != nil {
		return err
	}
	if err := d.awaitRefused(ctx, m, late); err != nil {
		return err
	}
	for i, w := range late {
		if i == 3 && len(late) > 4 {
			d.log.say("… and %d more", len(late)-i)
			break
		}
		d.log.say("%s: its update number %d, token %d, is REFUSED: the row has token %d, of %s",
			w.Key, w.N, w.Token, newer[i].Token, newer[i].Instance)
	}
	return nil
}

// awaitNewer waits until another instance has taken the lock of w's key and read the row.
func (d *drive) awaitNewer(ctx context.Context, w lateWrite) (r row, err error) {
	err = await(ctx, func() (bool, error) {
		r, err = d.store.row(ctx, w.Key)
		return r.Token > w.Token, err
	})
	if err != nil {
		return r, fmt.Errorf("waiting for a holder of %s after token %d: %w", w.Key, w.Token, err)
	}
	return r, nil
}

// awaitRefused waits until the instance has reported that all of the writes were refused.
func (d *drive) awaitRefused(ctx context.Context, m *member, late []lateWrite) error {
	for {
		stale, changed := m.refused()
		refused := map[staleWrite]bool{}
		for _, s := range stale {
			refused[s] = true
		}
		missing := 0
		for _, w := range late {
			if !refused[staleWrite{w.Key, w.Token, w.N}] {
				missing++
			}
		}
		if missing == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-m.exited:
			return errors.Join(fmt.Errorf("%s: ended, with %d late writes unaccounted for", m.name, missing), m.err())
		case <-ctx.Done():
			return fmt.Errorf("%s: waited for the refusal of %d late writes: %w", m.name, missing, context.Cause(ctx))
		}
	}
}

// await polls until the answer is yes.
func await(ctx context.Context, so func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, updateBound, errors.New("not within "+updateBound.String()))
	defer cancel()
	for {
		yes, err := so()
		if err != nil || yes {
			return err
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// awaitGone waits until a contender is gone, which is when the ensemble has ended its session.
func (s *stage) awaitGone(ctx context.Context, path, node string) error {
	err := await(ctx, func() (gone bool, err error) {
		err = s.insist(ctx, func(ctx context.Context, _ *session.Session) error {
			line, err := s.client.Queue(ctx, path)
			gone = !slices.ContainsFunc(line, func(k zklock.Contender) bool { return k.Node == node })
			return err
		})
		return gone, err
	})
	if err != nil {
		return fmt.Errorf("waiting for the end of %s: %w", node, err)
	}
	return nil
}

// timeline prints events with their times.
type timeline struct {
	mu    sync.Mutex // guards out
	out   io.Writer
	began time.Time
}

func (t *timeline) say(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	// Who can't read it won't miss it.
	fmt.Fprintf(t.out, "%7.3fs  %s\n", time.Since(t.began).Seconds(), fmt.Sprintf(format, args...))
}
