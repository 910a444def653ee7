package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"time"

	"github.com/zklock/locker/examples/internal/fleet"
	"github.com/zklock/locker/zklock"
)

// job is the lock's path, and that of the record beside it.
const job = "/examples/fleet-cron/nightly-report"

// work is how long the job takes.
const work = 150 * time.Millisecond

// host starts the job in every period, by a clock of its own.
type host struct {
	zk, name        string
	timeout, period time.Duration
	journal         fleet.Journal
}

// run starts the job period by period until ctx ends. It makes up for missed periods.
func (h host) run(ctx context.Context) error {
	c, err := zklock.Dial(ctx, h.zk, zklock.WithSessionTimeout(h.timeout), zklock.WithServerTick(h.timeout/4))
	if err != nil {
		return err
	}
	defer c.Close()
	nightly := c.Once(job, zklock.WithOwner(h.name), zklock.WithRemembered(1000))
	n, err := h.next()
	if err != nil {
		return err
	}
	for ; ; n++ {
		select {
		case <-time.After(time.Until(h.begin(n))):
		case <-ctx.Done():
			return nil
		}
		for err := h.start(ctx, nightly, n); err != nil; err = h.start(ctx, nightly, n) {
			if ctx.Err() != nil {
				return nil
			}
			fmt.Printf("%s: period %d: %v\n", h.name, n, err)
		}
	}
}

// start lets the job of period n be done, by this host or another: nil when it is done.
func (h host) start(ctx context.Context, nightly *zklock.Once, n int) error {
	key := strconv.Itoa(n)
	err := nightly.Do(ctx, key, func(work context.Context) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		// Once begun the job is finished, even if this host is asked to leave: it ends with the lock, and not with ctx.
		hold, _ := zklock.HoldFrom(work)
		return h.report(hold, n)
	})
	if errors.Is(err, zklock.ErrDone) {
		return nil
	}
	return err
}

// report is the job. It runs at least once: a host may end, or lose the lock, after the report is written and before
// the run is recorded. So it looks for the report first.
func (h host) report(hold *zklock.Hold, n int) error {
	if last, there, err := h.journal.Last("done"); err != nil || there && last.Item >= n {
		return err
	}
	e := fleet.Entry{Item: n, Token: int64(hold.Token()), Host: h.name, What: "begun"}
	if err := h.journal.Append(e); err != nil {
		return err
	}
	select {
	case <-time.After(work):
	case <-hold.Context().Done():
	}
	// This is the last check before the result is published: if the process was stopped meanwhile, it shows that the
	// lock is lost.
	if err := hold.Err(); err != nil {
		return err
	}
	e.What = "done"
	return h.journal.Append(e)
}

// next is the period that the host begins with: the one after the last one that is done.
func (h host) next() (int, error) {
	last, ok, err := h.journal.Last("done")
	if err != nil || ok {
		return last.Item + 1, err
	}
	return int(time.Now().UnixNano()/int64(h.period)) + 1, nil
}

// begin is when period n begins by this host's clock, which is late by up to half a period.
func (h host) begin(n int) time.Time {
	hash := fnv.New32()
	hash.Write([]byte(h.name))
	late := time.Duration(hash.Sum32()) % (h.period / 2)
	return time.Unix(0, int64(n)*int64(h.period)).Add(late)
}
