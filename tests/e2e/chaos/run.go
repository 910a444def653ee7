package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/zklock/locker/tests/e2e/history"
	"github.com/zklock/locker/tests/e2e/servers"
	"github.com/zklock/locker/tests/ensemble"
	"github.com/zklock/locker/zklock"
)

// Config says how a Run is made up.
type Config struct {
	Ensemble *servers.Ensemble
	// Inside clients run in this process, Outside clients in one each.
	Inside, Outside int
	Loads           []history.Load // default: all
	Seed            uint64         // of faults and workers
	Out             io.Writer      // gets a line for every fault
	// Only, when not empty, keeps to the faults whose names contain it.
	Only string
	// Overlap breaks the next server also while another one still catches up after the last fault.
	Overlap bool
	// Keep writes every round's history to a file, not only those with problems.
	Keep bool
	// Pictures is a folder for porcupine's pictures of the latest round; "" for none.
	Pictures string
}

// Run is an ensemble and its clients. It must not be used concurrently.
type Run struct {
	conf      Config
	root      string
	store     *Store
	peers     []*peer
	inspector *zklock.Client
	server    *deck
	client    *deck
	lacks     []string
	watched   int64 // watches at the servers before the run; -1: the servers don't tell
	round     int

	mu         sync.Mutex // guards what follows
	ops        []history.Op
	stops      []history.Stop
	faults     int
	roundBegan time.Time
}

// peer is a client and its way to the servers.
type peer struct {
	member
	conf    SiteConfig
	proxies []*ensemble.Proxy
	process *outside // nil: in this process
}

// mend ends a fault of the client's network. With cut, the bytes that were held back are lost;
// otherwise they arrive now.
func (p *peer) mend(cut bool) {
	for _, x := range p.proxies {
		if cut {
			x.Cut()
		}
		x.Thaw()
		x.Delay(0, 0)
	}
}

// permits is the size of the semaphores.
const permits = 3

// timeouts are the clients' session timeouts: from what is short for ZooKeeper to what suits an
// election in between. A server with an ordinary tick, which we did not start, allows no really
// short ones.
func timeouts(tick time.Duration) []time.Duration {
	if tick >= time.Second {
		return []time.Duration{4 * tick, 5 * tick, 6 * tick}
	}
	return []time.Duration{8 * tick, 12 * tick, 16 * tick}
}

// Open starts the clients and waits until each has a session. Close ends them; the ensemble is the
// caller's.
func Open(conf Config) (r *Run, err error) {
	if len(conf.Loads) == 0 {
		conf.Loads = history.Loads
	}
	r = &Run{conf: conf, root: fmt.Sprintf("/chaos-%d-%d", conf.Seed, time.Now().UnixNano())}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
			r = nil
		}
	}()
	if r.watched, err = conf.Ensemble.Watches(); err != nil {
		r.watched = -1 // mntr is not allowed on servers that we did not start: Head says so
	}
	if r.store, err = openStore(); err != nil {
		return r, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), dialBound)
	defer cancel()
	tick := conf.Ensemble.Tick
	r.inspector, err = zklock.Dial(ctx, conf.Ensemble.Connect(), zklock.WithTickTime(tick),
		zklock.WithSessionTimeout(20*tick))
	if err != nil {
		return r, err
	}
	for i := range conf.Inside + conf.Outside {
		if err := r.addPeer(i, i >= conf.Inside); err != nil {
			return r, err
		}
	}
	can, cannot := r.serverFaults()
	r.lacks = cannot
	r.server = &deck{all: r.only(can), rng: rand.New(rand.NewPCG(conf.Seed, 1))}
	r.client = &deck{all: r.only(r.clientFaults()), rng: rand.New(rand.NewPCG(conf.Seed, 2))}
	return r, nil
}

func (r *Run) only(all []fault) (some []fault) {
	for _, f := range all {
		stops := strings.Contains(f.name, "stopped")
		if strings.Contains(f.name, r.conf.Only) && !(stops && r.conf.Outside == 0) {
			some = append(some, f)
		}
	}
	return some
}

func (r *Run) addPeer(i int, outsider bool) error {
	e := r.conf.Ensemble
	p := &peer{}
	for _, addr := range e.Addrs {
		x, err := ensemble.OpenProxy(addr)
		if err != nil {
			return errors.Join(err, p.close())
		}
		p.proxies = append(p.proxies, x)
	}
	p.conf = SiteConfig{
		Client: i + 1, Connect: ensemble.Join(p.proxies...), Timeout: timeouts(e.Tick)[i%3],
		Tick:  e.Tick,
		Store: r.store.listener.Addr().String(),
	}
	var err error
	if outsider {
		p.process, err = newOutside(p.conf)
		p.member = p.process
	} else {
		p.member, err = newInside(p.conf)
	}
	if err != nil {
		p.member = nil
		return errors.Join(err, p.close())
	}
	r.peers = append(r.peers, p)
	return nil
}

func (p *peer) close() error {
	var errs []error
	if p.member != nil {
		errs = append(errs, p.member.close())
	}
	for _, x := range p.proxies {
		errs = append(errs, x.Close())
	}
	return errors.Join(errs...)
}

// Close ends the clients and joins all goroutines.
func (r *Run) Close() error {
	var errs []error
	for _, p := range r.peers {
		errs = append(errs, p.close())
	}
	if r.inspector != nil {
		errs = append(errs, r.inspector.Close())
	}
	if r.store != nil {
		errs = append(errs, r.store.close())
	}
	return errors.Join(errs...)
}

// Head names the workloads, clients and servers, for the first lines of the output.
func (r *Run) Head() string {
	e := r.conf.Ensemble
	var b strings.Builder
	fmt.Fprintf(&b, "servers: %s (%s), ZooKeeper %s, tick %v\n", e.Kind, e.Connect(), e.Version(),
		e.Tick)
	fmt.Fprintf(&b, "clients: %d in this process, %d in processes of their own; seed %d\n",
		r.conf.Inside, r.conf.Outside, r.conf.Seed)
	if len(r.lacks) > 0 {
		fmt.Fprintf(&b, "left out, since these servers can't be broken so from here: %s\n",
			strings.Join(r.lacks, ", "))
	}
	if r.watched < 0 {
		b.WriteString(
			"left out, since these servers don't answer mntr: that no watch is left at rest\n")
	}
	return b.String()
}

func (r *Run) say(format string, args ...any) {
	if r.conf.Out != nil {
		fmt.Fprintf(r.conf.Out, format+"\n", args...)
	}
}

// Round lets every worker work for d while faults strike, heals everything, waits for rest, and
// checks the history.
func (r *Run) Round(d time.Duration) (*Report, error) {
	r.round++
	o := Orders{
		Root: fmt.Sprintf("%s/%d", r.root, r.round), Loads: r.conf.Loads, Size: permits,
		Seed: r.conf.Seed<<16 + uint64(r.round),
	}
	if err := r.prepare(o); err != nil {
		return nil, err
	}
	r.mu.Lock()
	r.ops, r.stops, r.faults, r.roundBegan = nil, nil, 0, time.Now()
	r.mu.Unlock()
	slept := history.Slept()
	witness := r.watchEnsemble(o.Root)
	defer witness.finish()
	for _, p := range r.peers {
		if err := p.start(o, r.collect); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	var wrecks sync.WaitGroup
	var wreckErrs [2]error
	ready := r.whole
	if r.conf.Overlap {
		ready = func(context.Context) {}
	}
	wrecks.Go(func() { wreckErrs[0] = r.wreck(ctx, r.server, ready) }) // both end with ctx
	wrecks.Go(func() { wreckErrs[1] = r.wreck(ctx, r.client, func(context.Context) {}) })
	<-ctx.Done()
	wrecks.Wait()
	rep := &Report{Seed: r.conf.Seed, Round: r.round}
	if err := errors.Join(errors.Join(wreckErrs[:]...), r.heal()); err != nil {
		return nil, err
	}
	hung := r.hung()
	healed := time.Now()
	rep.problem(r.finish())
	rep.problem(r.atRest(o, rep))
	rep.Rest = time.Since(healed)
	rep.Rollbacks = append(witness.finish(), r.compare(o)...)
	if hung != "" {
		rep.Rollbacks = append(rep.Rollbacks, hung)
	}
	if s := history.Slept() - slept; s > time.Second {
		rep.problem(fmt.Errorf("the machine slept for %v: the history has a hole", s))
	}
	r.check(rep)
	if err := r.tidy(o); err != nil {
		return rep, err
	}
	return rep, nil
}

func (r *Run) collect(op history.Op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops = append(r.ops, op)
}

// heal ends every fault.
func (r *Run) heal() error {
	for _, p := range r.peers {
		p.mend(true)
		if p.process != nil {
			if err := p.process.resume(); err != nil {
				return err
			}
		}
	}
	if revive := r.conf.Ensemble.Control.Revive; revive != nil {
		return revive(restBound)
	}
	return nil
}

// finish joins the workers of all clients.
func (r *Run) finish() error {
	var wg sync.WaitGroup
	errs := make([]error, len(r.peers))
	for i, p := range r.peers {
		wg.Go(func() { errs[i] = p.finish() })
	}
	wg.Wait()
	return errors.Join(errs...)
}
