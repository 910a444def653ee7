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
	over chan struct{} // closed when the campaign is over for good

	mu   sync.Mutex // guards what follows
	term *zklock.Hold
	err  error // why the campaign is over
}

// Elector returns the elector with which the jobs of one scheduler run, that of the leader:
//
//	elector := lockfor.Elector(client.Election("/leaders/jobs"))
//	defer elector.Close() // after the scheduler's Shutdown
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
//
// It campaigns in the background, and again after a lost term, until Close. A job that runs when
// the term is lost, or when Close is called, is not told, and the next leader may run the same one.
//
// gocron skips a job silently when IsLeader returns an error. So watch Done: it is closed when no
// campaign can succeed any more, because the client was closed or the ensemble refuses it. End the
// process then, with IsLeader's error.
func Elector(e *zklock.Election) *GocronElector {
	ctx, stop := context.WithCancel(context.Background())
	el := &GocronElector{stop: stop, over: make(chan struct{})}
	go el.campaign(ctx, e) // Close joins it
	return el
}

// errNoResult is the error of a call that did not return because a hook called runtime.Goexit.
var errNoResult = errors.New("lockfor: a hook ended the goroutine")

// campaign campaigns until ctx ends, or no campaign can succeed any more. WithMaxWait bounds a
// single wait, not the campaign, so it goes to the end of the line after ErrBusy.
func (el *GocronElector) campaign(ctx context.Context, e *zklock.Election) {
	err := errNoResult
	defer func() {
		el.mu.Lock()
		el.err = err
		el.mu.Unlock()
		close(el.over)
	}()
	for {
		err = e.Run(ctx, nil, el.lead)
		if !errors.Is(err, zklock.ErrBusy) {
			return
		}
	}
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

// IsLeader returns nil if this process leads, without I/O. Errors: ErrNotLeader; once Done is
// closed, the error with which zklock.Election.Run has ended.
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

// Done is closed when this process does not campaign any more: after Close, or because no campaign
// can succeed.
func (el *GocronElector) Done() <-chan struct{} {
	return el.over
}

// Close resigns, and returns when that is done. Shut the scheduler down first: a job that still
// runs is not told.
func (el *GocronElector) Close() {
	el.stop()
	<-el.over
}
