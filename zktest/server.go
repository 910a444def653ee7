package zktest

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/zklock/locker/zktest/fault"
)

// ErrClosed is returned by calls on a Server that was closed.
var ErrClosed = errors.New("zktest: server is closed")

// TB is what Run needs of *testing.T, *testing.B or *testing.F.
type TB interface {
	Helper()
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Server is an in-process ZooKeeper. All methods may be called at any time from any goroutine.
type Server struct {
	opt options
	log *slog.Logger
	// the origin of the server's clock: ticks are counted from here, so that tests can count along
	born time.Time
	// passwords are derived from it; each server has its own, so a session fits no other
	secret [16]byte
	done   chan struct{} // closed by Close
	poked  chan struct{} // wakes the clock; holds one
	wg     sync.WaitGroup

	// mu guards everything below, and the fields that Member, conn, session and Injection name. It
	// is held for one request at a time and never while waiting for a client, a timer or the test.
	mu      sync.Mutex
	closed  bool
	stopped bool      // the clock, by StopClock
	failure error     // why the ensemble failed; then all members are down for good
	leader  *Member   // members[0]; never changes: there are no elections
	members []*Member // only grows
	// all that are not killed, including those whose client has hung up
	conns       map[*conn]struct{}
	zxid        int64 // the last one assigned; members may have applied less
	sessions    map[int64]*session
	nextSession int64
	nextSweep   time.Duration // on the server's clock
	lastConn    int64
	// in the order of Inject, which is the order in which they strike
	faults   []*Injection
	overlaps map[string]*overlap // by path
	requests map[fault.Op]int
	notified int
	received int64 // frames, for the four-letter words
	sent     int64
	awaiting chan struct{} // closed and set to nil at the next change; nil if no call awaits one
}

// Run starts a server for a test and closes it when the test ends. A start that fails ends the
// test; a goroutine left behind, or a failure of the ensemble (see Failure), fails it.
func Run(tb TB, opts ...Option) *Server {
	tb.Helper()
	s, err := Start(opts...)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(func() {
		if err := s.Failure(); err != nil {
			tb.Errorf("%v", err)
		}
		if err := s.Close(); err != nil {
			tb.Errorf("%v", err)
		}
	})
	return s
}

// Start starts a server outside of tests. The caller closes it. Errors are those of the options and
// of listening on a loopback port.
func Start(opts ...Option) (*Server, error) {
	o, err := newOptions(opts)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	s := &Server{
		opt:         o,
		log:         o.log,
		born:        now,
		done:        make(chan struct{}),
		poked:       make(chan struct{}, 1),
		conns:       map[*conn]struct{}{},
		sessions:    map[int64]*session{},
		nextSession: firstSession(now),
		nextSweep:   o.sweep,
		overlaps:    map[string]*overlap{},
		requests:    map[fault.Op]int{},
	}
	if _, err := rand.Read(s.secret[:]); err != nil {
		return nil, fmt.Errorf("zktest: secret: %w", err)
	}
	// A client may connect at once; the listener's goroutine waits here until the server is
	// complete.
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leader = newMember(s, newTree())
	if err := s.addMemberLocked(s.leader); err != nil {
		return nil, err
	}
	s.wg.Add(1)
	go s.clock()
	return s, nil
}

// Addr returns the server's address, "127.0.0.1:port", usable as a connect string.
func (s *Server) Addr() string { return s.leader.addr }

// Dial connects to the server in memory; timeout is ignored. A follower's addr leads to that
// follower, any other to the server itself, so Dial can replace a client's dialer whatever its
// connect string is. Writes are buffered (256 KiB each way) as by a socket, deadlines are honoured,
// and waits are durably blocking in a synctest bubble. It fails with a *net.OpError while
// connections are refused.
func (s *Server) Dial(network, addr string, timeout time.Duration) (net.Conn, error) {
	return s.memberAt(addr).Dial(network, addr, timeout)
}

// memberAt returns the follower with this address, or the leader if there is none.
func (s *Server) memberAt(addr string) *Member {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.members {
		if m.addr == addr {
			return m
		}
	}
	return s.leader
}

// Failure returns nil as long as the ensemble works, and otherwise why it failed: a session ended
// with so many ephemerals that the list of their paths is longer than twice the packet limit
// (WithJuteMaxBuffer). Real servers cannot read such a transaction, neither from their leader nor,
// when they restart, from their own log. From then on all members are down, and Up does nothing.
func (s *Server) Failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure
}

// joinTimeout bounds how long Close waits for goroutines that have no reason left to wait.
const joinTimeout = 10 * time.Second

// Close drops all connections, stops listening, and returns when every goroutine of the server has
// ended. If one has not after 10 s, it returns an error with the goroutines' stacks. Closing twice
// is harmless.
func (s *Server) Close() error {
	s.shut()
	// A second caller waits like the first: when any Close returns, nothing is left.
	joined := make(chan struct{})
	go func() { // ends with the last goroutine it waits for
		s.wg.Wait()
		close(joined)
	}()
	late := time.NewTimer(joinTimeout)
	defer late.Stop()
	select {
	case <-joined:
		return nil
	case <-late.C:
		buf := make([]byte, 1<<20)
		return fmt.Errorf("zktest: goroutines left after Close:\n%s",
			buf[:runtime.Stack(buf, true)])
	}
}

// shut drops all connections and stops listening. What runs ends soon after.
func (s *Server) shut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	close(s.done)
	for _, m := range s.members {
		if m.listener != nil {
			_ = m.listener.Close() // its only error is that it was closed before
		}
		m.killLocked()
	}
	s.changedLocked()
}

// changedLocked makes the calls of Await evaluate their conditions again.
func (s *Server) changedLocked() {
	if s.awaiting != nil {
		close(s.awaiting)
		s.awaiting = nil
	}
}

// Await returns nil as soon as cond is true, and ctx's error if ctx ends first. cond is called at
// once and after every event in the server: a request, a transaction, a connection that opens or
// closes, a fault that strikes. It is called without any lock held, so it may inspect the server.
// What the server has done, its client may not know yet.
func (s *Server) Await(ctx context.Context, cond func() bool) error {
	for {
		// Before the condition is evaluated, so that no change falls between the two.
		changed := s.nextChange()
		if cond() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("zktest: await: %w", context.Cause(ctx))
		}
	}
}

// nextChange returns a channel that is closed at the next change (changedLocked).
func (s *Server) nextChange() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.awaiting == nil {
		s.awaiting = make(chan struct{})
	}
	return s.awaiting
}

// sortedSessionsLocked returns the sessions in the order of their ids, which is the order of their
// creation. What happens to several sessions at once must happen in the same order in every run.
func (s *Server) sortedSessionsLocked() []*session {
	return slices.SortedFunc(maps.Values(s.sessions), func(a, b *session) int {
		return cmp.Compare(a.id, b.id)
	})
}
