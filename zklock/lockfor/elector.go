package lockfor

import (
	"context"
	"errors"
	"sync"

	"github.com/zklock/locker/zklock"
)

// GocronElector is an Elector of github.com/go-co-op/gocron/v2: see Elector.
type GocronElector struct {
	stop context.CancelFunc
	over chan struct{} // closed when Run has returned

	mu   sync.Mutex // guards what follows
	term *zklock.Hold
	err  error // why there is no campaign any more
}

// Elector returns the elector with which the jobs of one scheduler run, that of the leader:
//
//	elector := lockfor.Elector(client.Election("/leaders/jobs"))
//	defer elector.Close()
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
//
// It campaigns in the background, and again after a lost term, until Close. A job that runs when
// the term is lost is not told, and the next leader may run the same one.
func Elector(e *zklock.Election) *GocronElector {
	ctx, stop := context.WithCancel(context.Background())
	el := &GocronElector{stop: stop, over: make(chan struct{})}
	go func() { // Close joins it
		defer close(el.over)
		err := e.Run(ctx, nil, el.lead)
		el.mu.Lock()
		defer el.mu.Unlock()
		el.err = err
	}()
	return el
}

// lead holds the term until it ends.
func (el *GocronElector) lead(ctx context.Context, term *zklock.Hold) error {
	el.set(term)
	<-ctx.Done()
	el.set(nil)
	return ctx.Err()
}

func (el *GocronElector) set(term *zklock.Hold) {
	el.mu.Lock()
	defer el.mu.Unlock()
	el.term = term
}

// ErrNotLeader says that another candidate leads, or none.
var ErrNotLeader = errors.New("lockfor: does not lead")

// IsLeader returns nil if this process leads, without I/O. Errors: ErrNotLeader; after Close, or if
// no campaign can succeed any more, the error of zklock.Election.Run.
func (el *GocronElector) IsLeader(context.Context) error {
	el.mu.Lock()
	defer el.mu.Unlock()
	switch {
	case el.term != nil && el.term.Err() == nil:
		return nil
	case el.err != nil:
		return el.err
	}
	return ErrNotLeader
}

// Close resigns, and returns when that is done.
func (el *GocronElector) Close() {
	el.stop()
	<-el.over
}
