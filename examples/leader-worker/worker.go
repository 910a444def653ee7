package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/zklock/locker/zklock"
)

// partition is what the workers compete for.
const partition = "/examples/leader-worker/partition-7"

// pace is the time that one piece of work takes.
const pace = 300 * time.Millisecond

// worker owns the partition while it leads.
type worker struct {
	name    string
	timeout time.Duration
	out     io.Writer
}

// run campaigns until ctx ends, and works while it leads. A term that is lost ends the work before anybody else can
// lead; Run then campaigns again.
func (w worker) run(ctx context.Context, zk string) error {
	c, err := zklock.Dial(ctx, zk, zklock.WithSessionTimeout(w.timeout))
	if err != nil {
		return err
	}
	defer c.Close()
	e := c.Election(partition, zklock.WithOwner(w.name))
	return e.Run(ctx, []byte(w.name), w.lead)
}

// lead is one term. It looks at its context between any two pieces of work; whatever it writes elsewhere carries the
// token.
func (w worker) lead(ctx context.Context, l *zklock.Leadership) error {
	fmt.Fprintf(w.out, "%s leads, token %d\n", w.name, l.Token())
	for piece := 1; ; piece++ {
		select {
		case <-time.After(pace):
			fmt.Fprintf(w.out, "%s works on piece %d, token %d\n", w.name, piece, l.Token())
		case <-ctx.Done():
			fmt.Fprintf(w.out, "%s stops: %v\n", w.name, context.Cause(ctx))
			return context.Cause(ctx)
		}
	}
}
