package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zklock/locker/zklock"
)

// partition is what the workers compete for.
const partition = "/examples/leader-worker/partition-7"

// pace is the time that one piece of work takes.
const pace = 100 * time.Millisecond

// worker owns the partition while it leads.
type worker struct {
	zk, name string
	timeout  time.Duration
	rank     int // grows from release to release
	journal  journal
}

// run campaigns, and works while it leads, until leave ends: then it finishes its piece and
// resigns. A lost term ends the work before another worker can lead; Run then campaigns again.
func (w worker) run(leave context.Context) error {
	c, err := zklock.Dial(leave, w.zk, zklock.WithSessionTimeout(w.timeout))
	if err != nil {
		return err
	}
	defer c.Close()
	e := c.Election(partition, zklock.WithOwner(w.name)).WithRank(w.rank)
	err = e.Run(leave, []byte(w.name), func(_ context.Context, l *zklock.Hold) error {
		return w.lead(leave, l)
	})
	if errors.Is(err, context.Canceled) && leave.Err() != nil {
		return nil // asked to leave while another one led
	}
	return err
}

// lead is one term. Its pieces end with the term (l.Context), and are finished when this worker is
// asked to leave; it returns nil then, and Run resigns.
func (w worker) lead(leave context.Context, l *zklock.Hold) error {
	fmt.Printf("%s leads, token %d\n", w.name, l.Token())
	last, _, err := w.journal.last("done") // the previous leader's last piece
	if err != nil {
		return err
	}
	for item := last.Item + 1; leave.Err() == nil; item++ {
		if err := w.piece(l, item); err != nil {
			fmt.Printf("%s stops: %v\n", w.name, err)
			return err
		}
	}
	fmt.Printf("%s leaves\n", w.name)
	return nil
}

// piece is one piece of work.
func (w worker) piece(l *zklock.Hold, item int) error {
	e := entry{Item: item, Token: int64(l.Token()), Host: w.name, What: "begun"}
	if err := w.journal.append(e); err != nil {
		return err
	}
	select {
	case <-time.After(pace):
	case <-l.Context().Done():
	}
	// This is the last check before the result is written: if the process was stopped meanwhile, it
	// shows that it no longer leads. A write to a store carries the token, so that the store can
	// refuse a late one.
	if err := l.Err(); err != nil {
		return err
	}
	e.What = "done"
	return w.journal.append(e)
}
