package simulation_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zklock/locker/zktest"
)

// Families of kinds: the contenders of one family may share a directory.
const (
	famMutex = iota // Mutex, MultiLock, Election
	famRW
	famSem
)

// operations is the number of operations of each client.
const operations = 50

// world is one run of one seed, in a testing/synctest bubble.
type world struct {
	seed    uint64
	start   time.Time
	srv     *zktest.Server
	members []*zktest.Member
	paths   []string
	fam     []int
	size    []int // of the semaphores, as their first users name it
	players []*player
	oracle  *oracle
	handoff bool // WithLocalHandoff for the mutexes
	// clients start several operations at the same instant, and each write takes a while
	busy bool
	aged bool // a directory's counter may be near its end
	// there are fewer calls at a time, which wait for longer: no later event makes up for one that
	// was lost
	patient bool
	garbles bool // there are faults under which a client reads replies out of order
	expired atomic.Bool
	once    []aimed // the chaos's

	mu      sync.Mutex // guards what follows
	history []event
	bad     []string
}

// event is one line of the history. It is formatted only when it is read.
type event struct {
	at     time.Duration
	who    string
	format string
	args   []any
}

// newWorld draws the parameters of a seed.
func newWorld(seed uint64, srv *zktest.Server) (*world, error) {
	w := &world{seed: seed, start: time.Now(), srv: srv, members: []*zktest.Member{srv.Leader()}}
	rnd := w.rand(0)
	w.patient = rnd.IntN(4) == 0
	for range rnd.IntN(3) {
		m, err := srv.Follower()
		if err != nil {
			return nil, err
		}
		w.members = append(w.members, m)
	}
	if err := srv.Create("/reg", nil); err != nil {
		return nil, err
	}
	for i := range 3 {
		w.paths = append(w.paths, fmt.Sprintf("/locks/%c", 'a'+i))
		fam := []int{famMutex, famMutex, famRW, famSem}[rnd.IntN(4)]
		if w.patient && rnd.IntN(4) > 0 {
			// a semaphore's events tell of changes, which no server repeats by itself
			fam = famSem
		}
		w.fam = append(w.fam, fam)
		w.size = append(w.size, 1+rnd.IntN(4))
		if err := srv.Create(register(w.paths[i]), nil); err != nil {
			return nil, err
		}
	}
	if err := w.age(w.rand(1 << 40)); err != nil {
		return nil, err
	}
	w.garbles = rnd.IntN(4) == 0
	w.handoff = rnd.IntN(4) == 0
	w.busy = w.rand(1<<41).IntN(4) == 0
	for i := len(w.paths); w.busy && i < 9; i++ {
		w.paths, w.fam, w.size = append(w.paths, fmt.Sprintf("/locks/%c", 'a'+i)), append(w.fam,
			famMutex), append(w.size, 1)
		if err := srv.Create(register(w.paths[i]), nil); err != nil {
			return nil, err
		}
	}
	w.oracle = newOracle(w)
	for i := range 3 + rnd.IntN(3) {
		w.players = append(w.players, newPlayer(w, i))
	}
	return w, nil
}

// age sets the counters of some directories to a half, three quarters or the end of their range.
// Some of these directories can't be renewed, since they are never empty.
func (w *world) age(rnd *rand.Rand) error {
	if rnd.IntN(6) > 0 {
		return nil
	}
	w.aged = true
	if err := w.srv.Create("/locks", nil); err != nil {
		return err
	}
	for _, p := range w.paths {
		counter := []int32{0, 1 << 30, 3 << 29, math.MaxInt32}[rnd.IntN(4)]
		err := w.srv.Create(p, nil)
		if err == nil && rnd.IntN(2) == 0 {
			err = w.srv.Create(p+"/keep", nil)
		}
		if err == nil {
			err = w.srv.SetSequence(p, max(0, counter-rnd.Int32N(30)))
		}
		if err == nil {
			err = w.srv.Overlap(p, rnd.IntN(100))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// register is the znode that the holders of a path write with Hold.Multi.
func register(path string) string { return "/reg/" + path[len("/locks/"):] }

// rand returns the random generator of one stream: each part that draws has its own.
func (w *world) rand(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(w.seed, stream)) }

// garbled reports whether a client may have read replies out of order: by such a fault, or from a
// follower that lags, and still answers reads of a session that has been ended by force.
func (w *world) garbled() bool { return w.garbles || w.expired.Load() }

func (w *world) now() time.Duration { return time.Since(w.start) }

// note adds a line to the history. The arguments must not change later.
func (w *world) note(who, format string, args ...any) {
	e := event{w.now(), who, format, args}
	w.mu.Lock()
	w.history = append(w.history, e)
	w.mu.Unlock()
}

// violated records a broken guarantee.
func (w *world) violated(format string, args ...any) {
	msg := fmt.Sprintf(format, args...)
	w.note("CHECK", "%s", msg)
	w.mu.Lock()
	w.bad = append(w.bad, fmt.Sprintf("at %v: %s", w.now(), msg))
	w.mu.Unlock()
}

// pause waits until the first instant of the source r that is at least d away. It returns false if
// ctx ends first.
func pause(ctx context.Context, d time.Duration, r int) bool {
	now := time.Now()
	t := time.NewTimer(at(now, d, r).Sub(now))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// run runs the seed to its end, and then checks what is left.
func (w *world) run(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var playing, watching sync.WaitGroup
	watching.Go(func() { w.oracle.follow(ctx) })
	faulty, calm := context.WithCancel(ctx)
	var chaos sync.WaitGroup
	chaos.Go(func() { newChaos(w).run(faulty) })
	for _, p := range w.players {
		playing.Go(func() { p.play(ctx) })
	}
	for _, p := range w.players {
		<-p.allBegun
	}
	calm()
	chaos.Wait() // it repairs all faults when it ends
	w.note("world", "all faults are repaired")
	healed := w.now()
	watching.Go(func() { w.oracle.demandProgress(ctx) })
	playing.Wait()
	if late := w.now() - healed; late > longest {
		w.violated("calls lasted for %v after all faults were repaired", late)
	}
	w.aftermath(ctx)
	stop()
	watching.Wait()
}

// aftermath checks that nothing is left behind: first while the clients stay, then after they have
// gone.
func (w *world) aftermath(ctx context.Context) {
	for _, p := range w.players {
		p.ensure(ctx)
	}
	// A session that its client has given up lasts at the server for its timeout and a tick. The
	// client may have given it up only now, because of a message that took seconds.
	const lasts = maxTimeout + 3*time.Second
	pause(ctx, lasts, remAftermath)
	for waited := time.Duration(0); waited < 2*lasts &&
		len(w.srv.Sessions()) != len(w.players); waited += time.Second {
		pause(ctx, time.Second, remAftermath)
	}
	w.oracle.step()
	for _, path := range w.paths {
		for _, name := range w.srv.Children(path) {
			if name == "keep" { // see age
				continue
			}
			n, _ := w.srv.Node(path + "/" + name)
			w.violated("left in the tree: %s/%s, of %s, created at %v", path, name,
				w.oracle.owner(n.Stat.EphemeralOwner),
				time.UnixMilli(n.Stat.Ctime).Sub(w.start))
		}
	}
	for _, watch := range w.srv.Watches() {
		w.violated("watch left at the server: %+v", watch)
	}
	w.oracle.noneHolds()
	if n := len(w.srv.Sessions()); n != len(w.players) {
		w.violated("%d sessions of %d clients", n, len(w.players))
	}
	for _, p := range w.players {
		p.close()
	}
	// Messages are on their way. A session whose close gets lost lasts as long as one that was
	// given up.
	pause(ctx, lasts, remClosing)
	if left := w.srv.Sessions(); len(left) > 0 {
		w.violated("sessions left after Close: %+v", left)
	}
	if n := w.srv.Connections(); n > 0 {
		w.violated("%d connections left after Close", n)
	}
}

// lines returns the history, formatted.
func (w *world) lines() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	lines := make([]string, len(w.history))
	for i, e := range w.history {
		lines[i] = fmt.Sprintf("%14.6f %-7s %s", e.at.Seconds(), e.who,
			fmt.Sprintf(e.format, e.args...))
	}
	return lines
}

// report returns the output for a failed seed.
func (w *world) report() string {
	var b strings.Builder
	fmt.Fprintf(&b,
		"seed %d failed; again: go test ./tests/simulation -seeds 1 -first %d -cpu 1 -again 20\n", w.seed, w.seed)
	for _, line := range w.lines() {
		b.WriteString(line + "\n")
	}
	for _, bad := range w.bad {
		b.WriteString("violated " + bad + "\n")
	}
	return b.String()
}

// upTo draws a duration below d.
func upTo(rnd *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(rnd.Int64N(int64(d)))
}
