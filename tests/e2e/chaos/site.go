package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/rpc"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zklock/locker/tests/e2e/history"
	"github.com/zklock/locker/zklock"
)

// SiteConfig configures a site.
type SiteConfig struct {
	Client  int
	Connect string
	Timeout time.Duration // of its session
	Tick    time.Duration // of the servers
	Store   string        // the store's address
}

// releaseKey is for a *error in the context of a call: what the ensemble has answered to the
// release, which Unlock may not have waited for.
type releaseKey struct{}

// site is one client and its workers, in this process or, through child, in one of its own.
type site struct {
	conf  SiteConfig
	c     *zklock.Client
	store *rpc.Client
	ids   atomic.Int64

	beats atomic.Int64 // of time for which this process has run
	quit  chan struct{}
	over  chan struct{} // count has ended
}

// beat is the measure of time that a process has run: while it is stopped or starved, beats are
// missed and not made up for.
const beat = 50 * time.Millisecond

// count counts beats until quit is closed.
func (s *site) count() {
	defer close(s.over)
	t := time.NewTicker(beat)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			s.beats.Add(1)
		case <-s.quit:
			return
		}
	}
}

// dialBound is how long a client may take to get its first session, on a busy machine.
const dialBound = time.Minute

func openSite(conf SiteConfig) (*site, error) {
	ctx, cancel := context.WithTimeout(context.Background(), dialBound)
	defer cancel()
	store, err := rpc.Dial("tcp", conf.Store)
	if err != nil {
		return nil, err
	}
	c, err := zklock.Dial(ctx, conf.Connect, zklock.WithSessionTimeout(conf.Timeout),
		zklock.WithTickTime(conf.Tick),
		zklock.WithHooks(zklock.Hooks{Released: func(i zklock.LockInfo) {
			if answer, ok := i.Context.Value(releaseKey{}).(*error); ok {
				*answer = i.Err
			}
		}}))
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	s := &site{conf: conf, c: c, store: store, quit: make(chan struct{}), over: make(chan struct{})}
	go s.count()
	return s, nil
}

func (s *site) close() error {
	close(s.quit)
	<-s.over
	return errors.Join(s.c.Close(), s.store.Close())
}

// Orders configure the workers for one round.
type Orders struct {
	Root  string // the znode under which everything of the round is
	Loads []history.Load
	Size  int // of the semaphore
	Seed  uint64
}

// restBound is how long, after all was healed, a worker may take for its last cycle: sessions that
// expired have to be replaced first.
const restBound = 45 * time.Second

// round runs the workers until stop is closed, and then lets each complete one more cycle. emit is
// called from all of them. The errors are what should not have happened.
func (s *site) round(stop <-chan struct{}, o Orders, emit func(history.Op)) error {
	var wg sync.WaitGroup
	var names []string
	var loads []history.Load
	for _, load := range o.Loads {
		if load != history.Keys {
			names, loads = append(names, string(load)), append(loads, load)
			continue
		}
		for i := range keyWorkers {
			names, loads = append(names, fmt.Sprintf("%s %d", load, i)), append(loads, load)
		}
	}
	errs := make([]error, len(loads))
	for i, load := range loads {
		w := &worker{
			site: s, load: load, orders: o, emit: emit,
			name: fmt.Sprintf("client %d, %s", s.conf.Client, names[i]),
			rng:  rand.New(rand.NewPCG(o.Seed, uint64(s.conf.Client*1000+i))),
		}
		wg.Go(func() { errs[i] = w.run(stop) }) // ends a cycle after stop
	}
	wg.Wait()
	return errors.Join(errs...)
}

// The workload of keys: how many keys there are, how many workers of each client lock them, and the
// interval at whose beginning all of them call Lock, so that their writes are sent together.
const (
	keys       = 300
	keyWorkers = 100
	keyBeat    = 500 * time.Millisecond
)

// lead is how long the process may be kept from running without that mattering for a lease: the
// twenty-fifth of the timeout that the library allows for its own scheduling.
func (s *site) lead() time.Duration { return s.conf.Timeout / 25 }
