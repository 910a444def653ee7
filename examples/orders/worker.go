package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/zklock/locker/zklock"
)

// stages that an order goes through, one after the other: reserved, charged, sent.
const stages = 3

// pause is the time that a stage takes elsewhere: a call of a payment service, say.
const pause = time.Millisecond

// worker takes orders through their stages.
type worker struct {
	zk, name, database string
	timeout            time.Duration
}

// run works until no order is left, or leave ends: then it finishes the order that it is at.
func (w worker) run(leave context.Context) (err error) {
	s, err := openStore(w.database)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	c, err := zklock.Dial(leave, w.zk, zklock.WithSessionTimeout(w.timeout), zklock.WithServerTick(w.timeout/4))
	if err != nil {
		return err
	}
	defer c.Close()
	for leave.Err() == nil {
		orders, err := s.some(leave, 100)
		if err != nil || len(orders) == 0 {
			return err
		}
		for _, id := range orders {
			err := w.order(leave, c, s, id)
			switch {
			case leave.Err() != nil:
				return nil
			case err == nil, errors.Is(err, zklock.ErrBusy): // another worker has it
			case errors.Is(err, zklock.ErrLost), errors.Is(err, errLate):
				fmt.Printf("%s: order %d: %v\n", w.name, id, err)
			default:
				return fmt.Errorf("order %d: %w", id, err)
			}
		}
	}
	return nil
}

// order takes one order through the stages that are left. What waits ends with leave; what has begun, with the lock.
func (w worker) order(leave context.Context, c *zklock.Client, s *store, id int) error {
	// A container: the ensemble removes the directory of an unused key.
	hold, err := c.Mutex(zklock.KeyPath("/examples/orders", strconv.Itoa(id)), zklock.WithOwner(w.name), zklock.WithContainer()).TryLock(leave)
	if err != nil {
		return err
	}
	err = w.stages(hold, s, id)
	// The stages are done, whatever the outcome of the release: it continues in the background, or the session's end
	// releases the lock.
	released, cancel := context.WithTimeout(context.WithoutCancel(leave), w.timeout/10)
	defer cancel()
	if unlock := hold.Unlock(released); unlock != nil && err == nil && !errors.Is(unlock, context.DeadlineExceeded) && !errors.Is(unlock, zklock.ErrLost) {
		return unlock
	}
	return err
}

// stages reads the order and continues from there. The first statement leaves our token in the row, so that no later
// write of an earlier holder counts; each later statement is refused if a newer holder has done that.
func (w worker) stages(hold *zklock.Hold, s *store, id int) error {
	ctx, token := hold.Context(), int64(hold.Token())
	stage, err := s.claim(ctx, id, token)
	if err != nil {
		return w.why(hold, err)
	}
	for stage++; stage <= stages; stage++ {
		time.Sleep(pause)
		// The database decides, and not this process's view of whether it still holds the lock: a stop may come
		// anywhere.
		if err := s.advance(context.WithoutCancel(ctx), id, stage, token, w.name); err != nil {
			return w.why(hold, err)
		}
	}
	return nil
}

// why prefers the reason for the loss of the lock to the database's error about a context that has ended with it.
func (w worker) why(hold *zklock.Hold, err error) error {
	if lost := hold.Err(); lost != nil && !errors.Is(err, errLate) {
		return lost
	}
	return err
}
