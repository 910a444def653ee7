// Command failover measures how long it takes until the next candidate leads, whatever becomes of
// the leader or of the servers: the table of docs/how-to/leader.md. Candidates are processes, two
// for each election, on three servers.
//
//	go run ./failover                            # the installed ZooKeeper
//	ZOOKEEPER_HOME=… go run ./failover -rounds 3
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/tests/ensemble"
	"github.com/zklock/locker/zklock"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "failover:", err)
		os.Exit(1)
	}
}

// setting is a tick of the servers and a session timeout.
type setting struct{ tick, timeout time.Duration }

var settings = []setting{{2 * time.Second, 10 * time.Second}, {2 * time.Second, 4 * time.Second},
	{time.Second, 4 * time.Second}}

// trouble is what happens to a leader, or to a server. After some, the leader is to stay. An outage
// ends before strike returns, and the time counts from then on, until any candidate leads. A
// leader that restarts has a session file, and the time counts from its start. Where candidates are
// commands, zklock elect runs each, and is struck.
type trouble struct {
	name     string
	strike   func(r *rig, leader *candidate) error
	stays    bool
	outage   bool
	restarts bool
	commands bool
}

var troubles = []trouble{
	{name: "the leader gets SIGTERM, and resigns", strike: signals(syscall.SIGTERM)},
	{name: "it is killed (SIGKILL)", strike: signals(syscall.SIGKILL)},
	{name: "it is killed, and starts again 1 s later", strike: signals(syscall.SIGKILL),
		restarts: true},
	{name: "zklock elect is killed, whose command leads", strike: signals(syscall.SIGKILL),
		commands: true},
	{name: "its network is cut", strike: func(_ *rig, l *candidate) error { l.cut(); return nil }},
	{name: "it is frozen (SIGSTOP)", strike: signals(syscall.SIGSTOP)},
	{name: "a server that follows is killed", strike: func(r *rig, _ *candidate) error {
		return r.kill("follower")
	}, stays: true},
	{name: "ZooKeeper's leader is killed", strike: func(r *rig, _ *candidate) error {
		return r.kill("leader")
	}, stays: true},
	{name: "the ensemble was away for 8 s", strike: func(r *rig, _ *candidate) error {
		return r.away(8 * time.Second)
	}, outage: true},
}

// signals returns a strike that sends the leader a signal.
func signals(s syscall.Signal) func(*rig, *candidate) error {
	return func(_ *rig, leader *candidate) error { return leader.cmd.Process.Signal(s) }
}

func run(ctx context.Context) error {
	rounds := flag.Int("rounds", 2, "how often each trouble strikes")
	elections := flag.Int("elections", 4, "elections at once, each of two processes")
	only := flag.String("only", "", "measure only troubles whose name has this in it")
	servers := flag.String("candidate", "",
		"for the program's own use: be a candidate at these servers")
	path := flag.String("path", "", "of the candidate's election")
	timeout := flag.Duration("timeout", 0, "the candidate's session timeout")
	file := flag.String("file", "", "the candidate's session file, if it has one")
	lead := flag.Bool("lead", false, "for the program's own use: lead, as the command of zklock")
	flag.Parse()
	if *lead {
		fmt.Println("leads")
		<-ctx.Done()
		return nil
	}
	if *servers != "" {
		opts := []zklock.Option{zklock.WithSessionTimeout(*timeout)}
		if *file != "" {
			opts = append(opts, zklock.WithSessionFile(*file))
		}
		return campaign(ctx, *servers, *path, opts...)
	}
	fmt.Println(
		"| trouble | tick, session timeout | the next leads after: median | worst | of |\n|---|---|--:|--:|--:|")
	some := slices.DeleteFunc(troubles, func(t trouble) bool {
		return !strings.Contains(t.name, *only)
	})
	for _, s := range settings {
		if err := measure(ctx, s, some, *rounds, *elections); err != nil {
			return fmt.Errorf("tick %v, timeout %v: %w", s.tick, s.timeout, err)
		}
	}
	return nil
}

// campaign is a candidate: it says so when it leads, and resigns at SIGTERM.
func campaign(ctx context.Context, servers, path string, opts ...zklock.Option) error {
	client, err := zklock.Dial(ctx, servers, opts...)
	if err != nil {
		return err
	}
	err = client.Election(path).Run(ctx, nil, func(ctx context.Context, _ *zklock.Hold) error {
		fmt.Println("leads")
		<-ctx.Done()
		fmt.Println("ends")
		return nil
	})
	if ctx.Err() != nil {
		err = nil
	}
	return errors.Join(err, client.Close())
}

// rig is what candidates run on.
type rig struct {
	e      *ensemble.Ensemble
	zklock string // the file of the command
}

// build makes the command zklock in dir and returns its file.
func build(ctx context.Context, dir string) (string, error) {
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}",
		"github.com/zklock/locker")
	list.Stderr = os.Stderr
	module, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("%v: %w", list, err)
	}
	file := filepath.Join(dir, "zklock")
	compile := exec.CommandContext(ctx, "go", "build", "-o", file, ".")
	compile.Dir = filepath.Join(strings.TrimSpace(string(module)), "cmd", "zklock")
	compile.Stderr = os.Stderr
	if err := compile.Run(); err != nil {
		return "", fmt.Errorf("%v: %w", compile, err)
	}
	return file, nil
}

// kill kills a server of that mode.
func (r *rig) kill(mode string) error {
	i := slices.IndexFunc(r.e.Nodes, func(n *ensemble.Node) bool { return n.Mode() == mode })
	if i < 0 {
		return fmt.Errorf("no server is a %s", mode)
	}
	return r.e.Nodes[i].Kill()
}

// away kills all servers, and returns when they serve again, which is after d at the earliest.
func (r *rig) away(d time.Duration) error {
	for _, n := range r.e.Nodes {
		if err := n.Kill(); err != nil {
			return err
		}
	}
	time.Sleep(d)
	return r.e.Revive(time.Minute)
}

// candidate is a process that campaigns, with proxies of its own.
type candidate struct {
	cmd     *exec.Cmd
	proxies []*ensemble.Proxy
	leads   chan time.Time // when it said so
	ends    chan time.Time
	read    sync.WaitGroup
}

// start starts a candidate for t. file is its session file, or "".
func (r *rig) start(
	t trouble, path string, timeout time.Duration, file string,
) (c *candidate, err error) {
	c = &candidate{leads: make(chan time.Time, 100), ends: make(chan time.Time, 100)}
	var addrs []string
	for _, n := range r.e.Nodes {
		p, err := ensemble.OpenProxy(n.Addr())
		if err != nil {
			return c, err
		}
		c.proxies, addrs = append(c.proxies, p), append(addrs, p.Addr())
	}
	self, err := os.Executable()
	if err != nil {
		return c, err
	}
	servers := strings.Join(addrs, ",")
	if t.commands {
		return c, c.run(r.zklock, "elect", "--zk", servers, "--session-timeout", timeout.String(),
			path, "--", self, "-lead")
	}
	return c, c.run(self, "-candidate", servers, "-path", path, "-timeout", timeout.String(),
		"-file", file)
}

// run starts the candidate's process.
func (c *candidate) run(file string, args ...string) error {
	c.cmd = exec.Command(file, args...)
	c.cmd.Stderr, c.cmd.SysProcAttr = os.Stderr, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.cmd.Start(); err != nil {
		return err
	}
	c.read.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if lines.Text() == "leads" {
				c.leads <- time.Now()
			} else {
				c.ends <- time.Now()
			}
		}
	})
	return nil
}

// restart starts the process again, which was killed.
func (c *candidate) restart() error {
	return c.run(c.cmd.Path, c.cmd.Args[1:]...)
}

// awaitDeath waits until the process, which was killed, has ended.
func (c *candidate) awaitDeath() {
	c.read.Wait()
	_ = c.cmd.Wait() // killed
}

func (c *candidate) cut() {
	for _, p := range c.proxies {
		p.Freeze()
	}
}

// stop ends the candidate, however it is.
func (c *candidate) stop() (err error) {
	if c.cmd != nil && c.cmd.Process != nil {
		_ = c.cmd.Process.Kill() // it may have ended
		c.awaitDeath()
	}
	for _, p := range c.proxies {
		err = errors.Join(err, p.Close())
	}
	return err
}

// measure prints the rows of one setting.
func measure(
	ctx context.Context, s setting, troubles []trouble, rounds, elections int,
) (err error) {
	e, err := ensemble.Open(3, ensemble.WithTick(s.tick))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	version, err := e.Nodes[0].Version()
	if err != nil {
		return err
	}
	write, err := rawWrite(ctx, e)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "ZooKeeper %s, tick %v, session timeout %v; a write takes %v\n", version,
		s.tick, s.timeout, write.Round(time.Millisecond))
	dir, err := os.MkdirTemp("", "failover")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	command, err := build(ctx, dir)
	if err != nil {
		return err
	}
	r := &rig{e, command}
	for _, t := range troubles {
		var took []time.Duration
		stayed := 0
		for round := range rounds {
			path := fmt.Sprintf("/failover-%s-%d", strings.Map(letters, t.name), round)
			some, stays, err := r.round(ctx, t, s, path, elections)
			if err != nil {
				return fmt.Errorf("%s: %w", t.name, err)
			}
			took, stayed = append(took, some...), stayed+stays
		}
		slices.Sort(took)
		of := len(took) + stayed
		switch {
		case stayed == of:
			fmt.Printf("| %s | %v, %v | the leader stays | | %d |\n", t.name, s.tick, s.timeout, of)
		case t.stays:
			return fmt.Errorf("%s: %d of %d leaders were replaced", t.name, len(took), of)
		default:
			fmt.Printf("| %s | %v, %v | %s | %s | %d |\n", t.name, s.tick, s.timeout,
				shown(took[(len(took)-1)/2], write), shown(took[len(took)-1], write), of)
		}
	}
	return nil
}

func letters(c rune) rune {
	if c >= 'a' && c <= 'z' {
		return c
	}
	return '-'
}

// shown is a time as a table has it: a short one also as a multiple of a raw write's.
func shown(d, write time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%v (%.1f writes)", d.Round(time.Millisecond), float64(d)/float64(write))
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// rawWrite returns the median time of a write through the driver alone, to servers that have been
// idle for a second, as they are before a leader is struck: then a write takes several times as
// long as one of many.
func rawWrite(ctx context.Context, e *ensemble.Ensemble) (time.Duration, error) {
	conn, _, err := zk.Connect([]string{e.Nodes[0].Addr()}, 10*time.Second,
		zk.WithLogger(log.New(io.Discard, "", 0)))
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	var took []time.Duration
	for len(took) < 9 {
		if err := sleep(ctx, time.Second); err != nil {
			return 0, err
		}
		began := time.Now()
		if _, err := conn.Set("/", nil, -1); err != nil {
			return 0, err
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

// round lets a trouble strike the leaders of some elections, all at once, and returns how long it
// took until the next led, and how many leaders stayed.
func (r *rig) round(
	ctx context.Context, t trouble, s setting, path string, elections int,
) (took []time.Duration, stayed int, err error) {
	var first, second []*candidate
	defer func() {
		for _, c := range append(first, second...) {
			err = errors.Join(err, c.stop())
		}
		err = errors.Join(err, r.e.Revive(time.Minute))
	}()
	files, err := os.MkdirTemp("", "failover")
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(files)) }()
	patience := s.timeout + 4*s.tick + 10*time.Second
	for i := range elections {
		file := ""
		if t.restarts {
			file = filepath.Join(files, fmt.Sprint(i))
		}
		c, err := r.start(t, fmt.Sprint(path, i), s.timeout, file)
		first = append(first, c)
		if err == nil {
			_, err = await(ctx, patience, c.leads)
		}
		if err != nil {
			return nil, 0, fmt.Errorf("the first candidate: %w", err)
		}
	}
	for i := range elections {
		c, err := r.start(t, fmt.Sprint(path, i), s.timeout, "")
		second = append(second, c)
		if err != nil {
			return nil, 0, err
		}
	}
	if err := sleep(ctx, s.timeout); err != nil {
		// leaders have beaten, and the second candidates wait
		return nil, 0, err
	}
	began := time.Now()
	for i, leader := range first {
		if (t.stays || t.outage) && i > 0 {
			break // it strikes a server, and so all of them
		}
		if err := t.strike(r, leader); err != nil {
			return nil, 0, err
		}
	}
	if t.outage {
		began = time.Now()
	}
	if t.restarts {
		if began, err = restart(ctx, first); err != nil {
			return nil, 0, err
		}
	}
	for i, next := range second {
		leads := []<-chan time.Time{next.leads}
		if t.outage {
			leads = append(leads, first[i].leads)
		}
		led, err := await(ctx, time.Until(began.Add(patience)), leads...)
		switch {
		case err == nil:
			took = append(took, led.Sub(began))
		case !t.stays:
			return nil, 0, err
		case len(first[i].ends) > 0:
			return nil, 0, errors.New("a leader's term ended, and nobody leads")
		default:
			stayed++
		}
	}
	return took, stayed, nil
}

// restart starts candidates again that were killed, a second later, and returns when it did.
func restart(ctx context.Context, killed []*candidate) (began time.Time, err error) {
	for _, c := range killed {
		c.awaitDeath()
	}
	if err := sleep(ctx, time.Second); err != nil {
		return began, err
	}
	began = time.Now()
	for _, c := range killed {
		if err := c.restart(); err != nil {
			return began, err
		}
	}
	return began, nil
}

// await returns what the first of one or two candidates says.
func await(ctx context.Context, atMost time.Duration, said ...<-chan time.Time) (time.Time, error) {
	limit := time.NewTimer(max(atMost, 0))
	defer limit.Stop()
	select {
	case at := <-said[0]:
		return at, nil
	case at := <-said[len(said)-1]:
		return at, nil
	case <-limit.C:
		return time.Time{}, fmt.Errorf("does not lead within %v", atMost.Round(time.Millisecond))
	case <-ctx.Done():
		return time.Time{}, ctx.Err()
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
