// Package load is the half of the benchmark that runs in a process of its own for each contestant:
// it opens sessions, runs workers that lock and unlock, and reports the times. The programs in
// match/testdata do exactly the same in Java and Python, so that every contestant is measured by
// one method.
//
// # Protocol
//
// A command is a line on standard input, words separated by single spaces:
//
//	run SERVERS OFFSET TIMEOUT-MS ROOT CLIENTS WORKERS LOCKS WARM-MS RUN-MS
//
// CLIENTS sessions with WORKERS threads each lock and unlock without a pause. SERVERS is
// host:port,host:port,…; client i uses the one server (i+OFFSET) mod n, so that all contestants of
// a round use the same servers. Worker i uses the lock at ROOT/(i mod LOCKS). The answers on
// standard output, in nanoseconds of a monotonic clock, are op LOCK ASKED GOT LEFT for every cycle,
// then done START END, the time that counts: it begins after the warm-up. Both last longer than
// asked for if they have to: for as many cycles as there are locks, or a twentieth of the workers.
// Before done a program may say what its process has used in that time: cost CPU-NS ALLOCATIONS
// READS-AND-WRITES. Any command may be answered by error TEXT instead. The end of the input ends
// the program.
package load

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zklock/locker/tests/bench/stats"
)

// Peer is a contestant.
type Peer interface {
	// Open opens one session at one server.
	Open(ctx context.Context, server string, timeout time.Duration) (Client, error)
}

// Client is one session.
type Client interface {
	// Locker returns one worker's access to the lock at path. shared: other workers of the session
	// use the path too.
	Locker(ctx context.Context, path string, shared bool) (Locker, error)
	Close() error
}

// Locker locks and unlocks for one worker.
type Locker interface {
	Lock(ctx context.Context) error
	Unlock(ctx context.Context) error
}

// bound is how long a command may take beyond its own times.
const bound = 5 * time.Minute

// Serve answers commands until the input ends. The error is of the input or the output.
func Serve(in io.Reader, out io.Writer, peer Peer) error {
	w := bufio.NewWriter(out)
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		s := server{peer: peer}
		r, err := s.do(lines.Text())
		if err != nil {
			// w keeps its own errors for Flush
			fmt.Fprintf(w, "error %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
		} else {
			r.print(w)
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	return lines.Err()
}

// result is the answer to a command.
type result struct {
	ops    []stats.Op
	during stats.Window
	cost   stats.Cost
}

// print prints the answer. w keeps its errors for Flush.
func (r result) print(w *bufio.Writer) {
	for _, o := range r.ops {
		fmt.Fprintf(w, "op %d %d %d %d\n", o.Lock, o.Asked, o.Got, o.Left)
	}
	fmt.Fprintf(w, "cost %d %d %d\n", r.cost.CPU, r.cost.Allocations, r.cost.SystemCalls)
	fmt.Fprintf(w, "done %d %d\n", r.during.Start, r.during.End)
}

// server is one command.
type server struct {
	peer                    Peer
	servers                 []string
	offset                  int
	timeout, warm, run      time.Duration
	root                    string
	clients, workers, locks int
	opened                  []Client
}

func (s *server) do(command string) (r result, err error) {
	var servers string
	if _, err := fmt.Sscanf(command, "run %s %d %d %s %d %d %d %d %d\n", &servers, &s.offset,
		&s.timeout, &s.root,
		&s.clients, &s.workers, &s.locks, &s.warm, &s.run); err != nil {
		return r, fmt.Errorf("command %q: %w", command, err)
	}
	s.servers = strings.Split(servers, ",")
	s.timeout *= time.Millisecond
	s.warm *= time.Millisecond
	s.run *= time.Millisecond
	ctx, cancel := context.WithTimeout(context.Background(), bound+s.warm+s.run)
	defer cancel()
	lockers, err := s.open(ctx)
	if err == nil {
		r, err = s.work(ctx, lockers)
	}
	return r, errors.Join(err, s.close())
}

// open opens the sessions, several at a time, and a locker for each worker.
func (s *server) open(ctx context.Context) ([]Locker, error) {
	s.opened = make([]Client, s.clients)
	lockers := make([]Locker, s.clients*s.workers)
	errs := make([]error, s.clients)
	slots := make(chan struct{}, 8)
	var opening sync.WaitGroup
	for i := range s.clients {
		slots <- struct{}{}
		opening.Go(func() {
			defer func() { <-slots }()
			errs[i] = s.openOne(ctx, i, lockers)
		})
	}
	opening.Wait()
	return lockers, errors.Join(errs...)
}

func (s *server) openOne(ctx context.Context, i int, lockers []Locker) (err error) {
	if s.opened[i],
		err = s.peer.Open(ctx, s.servers[(i+s.offset)%len(s.servers)], s.timeout); err != nil {
		return fmt.Errorf("client %d: %w", i, err)
	}
	for n := i * s.workers; n < (i+1)*s.workers; n++ {
		if lockers[n],
			err = s.opened[i].Locker(ctx, fmt.Sprint(s.root, "/", n%s.locks),
			s.workers > s.locks); err != nil {
			return fmt.Errorf("client %d, worker %d: %w", i, n, err)
		}
	}
	return nil
}

func (s *server) close() error {
	errs := make([]error, len(s.opened))
	var closing sync.WaitGroup
	for i, c := range s.opened {
		if c != nil {
			closing.Go(func() { errs[i] = c.Close() })
		}
	}
	closing.Wait()
	return errors.Join(errs...)
}

// base is the origin of all times.
var base = time.Now()

func now() int64 { return int64(time.Since(base)) }

func cycle(ctx context.Context, l Locker, lock int) (o stats.Op, err error) {
	o.Lock, o.Asked = lock, now()
	if err := l.Lock(ctx); err != nil {
		return o, err
	}
	o.Got = now()
	err = l.Unlock(ctx)
	o.Left = now()
	return o, err
}

func (s *server) work(ctx context.Context, lockers []Locker) (r result, err error) {
	var (
		ops            = make([][]stats.Op, len(lockers))
		errs           = make([]error, len(lockers))
		start          atomic.Int64 // of the time that counts; zero during the warm-up
		before, during atomic.Int64 // cycles that ended before start, and after it
		over           atomic.Bool
		working        sync.WaitGroup
	)
	for i, l := range lockers {
		working.Go(func() {
			for !over.Load() {
				o, err := cycle(ctx, l, i%s.locks)
				if errs[i] = err; err != nil {
					over.Store(true)
					return
				}
				ops[i] = append(ops[i], o)
				switch from := start.Load(); {
				case from == 0:
					before.Add(1)
				case o.Left >= from:
					during.Add(1)
				}
			}
		})
	}
	// On a busy machine the times alone could leave nothing to measure.
	few := int64(max(s.locks, len(lockers)/20))
	after := func(d time.Duration, cycles *atomic.Int64) int64 {
		for time.Sleep(d); cycles.Load() < few && !over.Load(); {
			time.Sleep(time.Millisecond)
		}
		return now()
	}
	r.during.Start = after(s.warm, &before)
	costBefore, costErr := cost()
	start.Store(r.during.Start)
	r.during.End = after(s.run, &during)
	costAfter, err := cost()
	over.Store(true)
	working.Wait()
	r.cost = costAfter.Less(costBefore)
	r.ops = slices.Concat(ops...)
	return r, errors.Join(append(errs, costErr, err)...)
}
