package queue

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/session"
)

// sweeper deletes what calls of one session have left behind: znodes that no call needs any more, and those of creates
// whose call ended before the outcome was known. Its one goroutine takes all together, and ends when none is left.
type sweeper struct {
	s         *session.Session
	mu        sync.Mutex // guards what follows
	leftovers            // that are to be taken
	running   bool       // run has been started, and takes what comes
}

type leftovers struct {
	creates []doubtfulCreate
	znodes  []string
}

// doubtfulCreate is a create that may have been carried out. adopted is a znode of that prefix that stays, or "".
type doubtfulCreate struct{ dir, prefix, adopted string }

// discard has the znodes of entries of one session deleted in the background.
func discard(entries ...*entry) {
	var l leftovers
	for _, e := range entries {
		if e.node == "" {
			continue // it was not made, or was not found
		}
		e.unwatch()
		l.znodes = append(l.znodes, e.node)
	}
	if !l.none() {
		sharedIn(entries[0].t.s).sweeper.sweep(l)
	}
}

// sweep gives the sweeper work. Once the session is over there is nothing to do: the server deletes its znodes.
func (w *sweeper) sweep(work leftovers) {
	w.mu.Lock()
	w.creates, w.znodes = append(w.creates, work.creates...), append(w.znodes, work.znodes...)
	start := !w.running
	w.running = true
	w.mu.Unlock()
	if start {
		w.s.Go(w.run)
	}
}

func (l *leftovers) none() bool { return len(l.creates)+len(l.znodes) == 0 }

// run works until nothing is left, or the session is over.
func (w *sweeper) run(ctx context.Context) {
	persist(ctx, func() (trouble error) {
		for trouble == nil && ctx.Err() == nil { // what is left waits for a connection by itself
			w.mu.Lock()
			work := w.leftovers
			w.leftovers, w.running = leftovers{}, !work.none()
			w.mu.Unlock()
			if work.none() {
				return nil
			}
			trouble = w.work(ctx, work)
		}
		return trouble
	})
}

// atOnce bounds the deletions that are sent together.
const atOnce = 128

// work does what it can of l, and gives the sweeper the rest. trouble: a server's answer that may pass.
func (w *sweeper) work(ctx context.Context, l leftovers) (trouble error) {
	var rest leftovers
	failed := func(err error) bool { // to be tried again
		again := err != nil && !final(err)
		if again && !transient(err) {
			trouble = err
		}
		return again
	}
	remove := func(znodes []string) {
		for some := range slices.Chunk(znodes, atOnce) {
			b := w.s.Grouped()
			deleted := make([]*session.Result[session.None], len(some))
			for i, znode := range some {
				deleted[i] = b.Delete(znode, -1)
			}
			_ = b.Do(ctx) // each result has its own error
			for i, d := range deleted {
				if failed(d.Err) {
					rest.znodes = append(rest.znodes, some[i])
				}
			}
		}
	}
	remove(l.znodes)
	missing, found, err := w.search(ctx, l.creates, func() error { return w.s.Sync(ctx, l.creates[0].dir) })
	remove(found)
	if len(missing) > 0 && err == nil {
		// A leader's answer to a sync may miss what a follower had just acknowledged (session.Session.Sync), and no later
		// look would find it: look again behind a write.
		_, found, err = w.search(ctx, missing, func() error {
			_, err := w.s.Multi(ctx, session.OpCheck{Path: missing[0].dir, Version: -1})
			return err
		})
		remove(found)
	}
	if failed(err) {
		rest.creates = append(rest.creates, missing...)
	}
	w.sweep(rest)
	return trouble
}

// search looks for the znodes of creates, after catchUp, a request that makes the server catch up. Creates in a directory
// that we may not list are not among the missing: they go with the session. After an error, the missing may exist.
func (w *sweeper) search(ctx context.Context, creates []doubtfulCreate, catchUp func() error) (missing []doubtfulCreate, found []string, first error) {
	if len(creates) == 0 {
		return nil, nil, nil
	}
	if err := catchUp(); err != nil && !final(err) { // a refusal comes after the earlier writes, too
		return creates, nil, err
	}
	below := map[string][]doubtfulCreate{}
	for _, c := range creates {
		below[c.dir] = append(below[c.dir], c)
	}
	for _, dir := range slices.Sorted(maps.Keys(below)) { // a fixed order, so that a simulated run can be repeated
		var prefixes []string
		for _, c := range below[dir] {
			prefixes = append(prefixes, c.prefix)
		}
		own, _, err := look(ctx, w.s, dir, prefixes...)
		if final(err) {
			continue
		}
		first = cmp.Or(first, err)
		for _, c := range below[dir] {
			create, made := dir+"/"+c.prefix, session.Created{}
			for _, znode := range own { // more than one, if it was made again because a first look had missed it
				if strings.HasPrefix(znode.Path, create) && znode.Path != c.adopted {
					made, found = znode, append(found, znode.Path)
				}
			}
			if made.Path == "" || err != nil {
				missing = append(missing, c)
			}
			if err == nil {
				w.s.Found(create, made.Path, made.Czxid) // the session counts its znodes
			}
		}
	}
	return missing, found, first
}

// final reports whether another attempt after err is of no use: nothing is left to do, or it would be refused again.
func final(err error) bool {
	return isOne(err, zk.ErrNoNode, zk.ErrNoAuth, session.ErrTooLarge, session.ErrPath)
}
