package load

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Peer is a contestant.
type Peer interface {
	// Open opens one session at one server.
	Open(ctx context.Context, server string, timeout time.Duration) (Client, error)
}

// Counter is a Peer that counts its clients' requests and notifications, for a protocol that no tap can read.
type Counter interface {
	Counts() (requests, notifications int64)
}

// Client is one session.
type Client interface {
	// Locker returns one worker's access to the lock at path. shared: other workers of the session use the path too.
	Locker(ctx context.Context, path string, shared bool) (Locker, error)
	Close() error
}

// Locker locks and unlocks for one worker.
type Locker interface {
	Lock(ctx context.Context) error
	Unlock(ctx context.Context) error
}

// op is one cycle.
type op struct {
	lock                      int
	asked, got, leaving, left int64
}

// bound is how long a command may take beyond its own times.
const bound = 5 * time.Minute

// spec is a command's words.
type spec struct {
	servers                 []string
	offset                  int
	timeout                 time.Duration
	root                    string
	clients, workers, locks int
	warm, run               time.Duration
}

// Serve answers commands until the input ends. The error is of the input or the output.
func Serve(in io.Reader, out io.Writer, peer Peer) error {
	w := bufio.NewWriter(out)
	s := &server{peer: peer, say: func(format string, args ...any) error {
		fmt.Fprintf(w, format+"\n", args...) // bufio keeps an error for Flush
		return w.Flush()
	}, out: w}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		words := strings.Split(lines.Text(), " ")
		err := s.do(words)
		if err == nil {
			continue
		}
		if err := s.say("error %s: %s", words[0], strings.ReplaceAll(err.Error(), "\n", "; ")); err != nil {
			return err
		}
	}
	return errors.Join(lines.Err(), s.end())
}

// server is the state between two commands: the sessions that park and hold opened.
type server struct {
	peer    Peer
	say     func(string, ...any) error
	out     *bufio.Writer
	clients []Client
	held    Locker
	base    int64         // bytes of memory before the waiters
	waiting chan struct{} // closed when the last waiter is done
	cancel  func()        // ends their wait
	ops     []op
	failed  error
}

func (s *server) do(words []string) error {
	switch words[0] {
	case "run", "park", "hold":
		c, err := parse(words)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), bound+c.warm+c.run)
		if words[0] == "run" {
			defer cancel()
			return s.run(ctx, c)
		}
		return s.park(ctx, cancel, c)
	case "measure":
		return s.say("memory %d%s", memory()-s.base, s.counts())
	case "drain":
		return s.drain()
	}
	return fmt.Errorf("unknown command %q", words[0])
}

// parse reads the words of run, park and hold; a word that a command does not have is one, or zero for a time.
func parse(words []string) (spec, error) {
	names := map[string]int{"run": 10, "park": 7, "hold": 5}
	if len(words) != names[words[0]] {
		return spec{}, fmt.Errorf("%d words instead of %d", len(words), names[words[0]])
	}
	c := spec{servers: strings.Split(words[1], ","), root: words[4]}
	var timeout, warm, run int
	to := []*int{nil, nil, &c.offset, &timeout, nil, &c.clients, &c.workers, &c.locks, &warm, &run}
	for i, p := range to {
		if p == nil {
			continue
		}
		if *p = 1; i >= len(words) {
			continue
		}
		n, err := strconv.Atoi(words[i])
		if err != nil || n < 0 || i != 2 && i != 8 && n == 0 {
			return spec{}, fmt.Errorf("word %d, %q, is not a number in range", i, words[i])
		}
		*p = n
	}
	c.timeout, c.warm, c.run = time.Duration(timeout)*time.Millisecond, time.Duration(warm)*time.Millisecond, time.Duration(run)*time.Millisecond
	return c, nil
}

// open opens the sessions, several at a time, and a locker for each worker.
func (s *server) open(ctx context.Context, c spec) ([]Locker, error) {
	s.clients = make([]Client, c.clients)
	lockers := make([]Locker, c.clients*c.workers)
	errs := make([]error, c.clients)
	slots := make(chan struct{}, 8)
	var opening sync.WaitGroup
	for i := range s.clients {
		slots <- struct{}{}
		opening.Go(func() {
			defer func() { <-slots }()
			errs[i] = s.openOne(ctx, c, i, lockers)
		})
	}
	opening.Wait()
	return lockers, errors.Join(errs...)
}

func (s *server) openOne(ctx context.Context, c spec, i int, lockers []Locker) (err error) {
	if s.clients[i], err = s.peer.Open(ctx, c.servers[(i+c.offset)%len(c.servers)], c.timeout); err != nil {
		return fmt.Errorf("client %d: %w", i, err)
	}
	for k := range c.workers {
		n := i*c.workers + k
		if lockers[n], err = s.clients[i].Locker(ctx, fmt.Sprint(c.root, "/", n%c.locks), c.workers > c.locks); err != nil {
			return fmt.Errorf("client %d, worker %d: %w", i, k, err)
		}
	}
	return nil
}

// end closes what was opened.
func (s *server) end() error {
	errs := make([]error, len(s.clients))
	var closing sync.WaitGroup
	for i, c := range s.clients {
		if c != nil {
			closing.Go(func() { errs[i] = c.Close() })
		}
	}
	closing.Wait()
	if s.cancel != nil {
		s.cancel()
		<-s.waiting
	}
	*s = server{peer: s.peer, say: s.say, out: s.out}
	return errors.Join(errs...)
}

func cycle(ctx context.Context, l Locker, lock int) (o op, err error) {
	o.lock, o.asked = lock, Now()
	if err := l.Lock(ctx); err != nil {
		return o, err
	}
	o.got = Now()
	o.leaving = Now()
	err = l.Unlock(ctx)
	o.left = Now()
	return o, err
}

// run is the command of that name.
func (s *server) run(ctx context.Context, c spec) (err error) {
	lockers, err := s.open(ctx, c)
	defer func() { err = errors.Join(err, s.end()) }()
	if err != nil {
		return err
	}
	if err := s.say("opened"); err != nil {
		return err
	}
	var (
		ops     = make([][]op, len(lockers))
		errs    = make([]error, len(lockers))
		cycles  atomic.Int64
		over    atomic.Bool
		working sync.WaitGroup
	)
	for i, l := range lockers {
		working.Go(func() {
			for !over.Load() {
				o, err := cycle(ctx, l, i%c.locks)
				if errs[i] = err; err != nil {
					over.Store(true)
					return
				}
				ops[i] = append(ops[i], o)
				cycles.Add(1)
			}
		})
	}
	// On a busy machine the times alone could leave nothing to measure.
	enough := func(n int64) bool { return cycles.Load() >= n || over.Load() }
	few := int64(max(c.locks, len(lockers)/20))
	err = s.at("start", c.warm, func() bool { return enough(few) })
	more := cycles.Load() + few
	err = errors.Join(err, s.at("end", c.run, func() bool { return enough(more) }))
	over.Store(true)
	working.Wait()
	if err := errors.Join(append(errs, err)...); err != nil {
		return err
	}
	for _, o := range ops {
		s.report(o)
	}
	return s.say("done")
}

// at sends a word after that time, and when there is enough.
func (s *server) at(word string, after time.Duration, enough func() bool) error {
	for time.Sleep(after); !enough(); {
		time.Sleep(time.Millisecond)
	}
	return s.say("%s %d%s", word, Now(), s.counts())
}

// counts is what a Counter appends to an answer.
func (s *server) counts() string {
	if c, ok := s.peer.(Counter); ok {
		requests, notifications := c.Counts()
		return fmt.Sprint(" ", requests, " ", notifications)
	}
	return ""
}

func (s *server) report(ops []op) {
	for _, o := range ops {
		fmt.Fprintf(s.out, "op %d %d %d %d %d\n", o.lock, o.asked, o.got, o.leaving, o.left)
	}
}

// park is the command of that name, and also hold, which has one worker.
func (s *server) park(ctx context.Context, cancel func(), c spec) error {
	defer func() {
		if s.cancel == nil {
			cancel()
		}
	}()
	if err := s.end(); err != nil {
		return err
	}
	lockers, err := s.open(ctx, c)
	if err != nil {
		return errors.Join(err, s.end())
	}
	s.base = memory()
	if err := s.say("opened"); err != nil {
		return err
	}
	if err := lockers[0].Lock(ctx); err != nil {
		return errors.Join(err, s.end())
	}
	got := Now()
	s.held, s.waiting, s.cancel = lockers[0], make(chan struct{}), cancel
	s.ops = []op{{got: got, asked: got}}
	s.wait(ctx, lockers[1:])
	return s.say("held %d", got)
}

// wait makes the others wait, each in a goroutine of its own; drain joins them.
func (s *server) wait(ctx context.Context, lockers []Locker) {
	var mu sync.Mutex // guards ops and failed
	var all sync.WaitGroup
	for _, l := range lockers {
		all.Go(func() {
			o, err := cycle(ctx, l, 0)
			mu.Lock()
			defer mu.Unlock()
			s.ops = append(s.ops, o)
			s.failed = errors.Join(s.failed, err)
		})
	}
	go func() { // ends with the last of them
		defer close(s.waiting)
		all.Wait()
	}()
}

func (s *server) drain() (err error) {
	if s.held == nil {
		return errors.New("no lock is held")
	}
	defer func() { err = errors.Join(err, s.end()) }()
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	leaving := Now()
	err = s.held.Unlock(ctx)
	left := Now()
	<-s.waiting // each of them ends by the bound of park
	if err = errors.Join(err, s.failed); err != nil {
		return err
	}
	s.ops[0].leaving, s.ops[0].left = leaving, left
	s.report(s.ops)
	return s.say("done%s", s.counts())
}

// memory is the heap after two collections, since the first only finds what finalizers keep, and the stacks.
func memory() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
