package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// Scripts of what clients do to locks, and of what happens to them meanwhile: testdata/scripts. Each file runs on a
// server of its own in simulated time. A block is a moment: its lines happen one after the other, each as soon as nothing
// more follows from the line before. Below the block's ---- stands what the calls made of it. Time passes only at sleep
// and await, so that whatever else stands there happened at once. What one line has caused stands in the order of the
// calls' names; what must not happen before a line has a block of its own before it. `go test ./zklock -run Scripts -rewrite` writes the
// outcomes anew.
//
//	a lock /l              a call of client a, which connects when it is first named; a.2 is another call of a
//	a cancel, a unlock     the end of the call's ctx; the release of its hold
//	sleep 10s              time passes
//	await 30s a            time passes until a's call has returned, or a's hold has ended
//	show /l                whose znodes are there, in the order of their numbers
//
// scripts_verbs_test.go has all verbs. A call that succeeded is checked: its znode is there, and its session's, and the
// token is its czxid. At the end of a scene every call has ended, and no znode and no watch is left.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, file string) {
		locktest.Simulate(t, func(s *locktest.Sim) {
			st := &stage{Sim: s}
			st.clear()
			datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
				var out strings.Builder
				for line := range strings.Lines(d.FullCmd() + "\n" + d.Input) {
					if line = strings.TrimSpace(line); line != "" {
						st.step(&out, d.Pos, line)
					}
				}
				return out.String()
			})
			st.end("the file")
		})
	})
}

// stage is what a scene plays on.
type stage struct {
	*locktest.Sim
	clients    map[string]*locktest.Client
	first      map[string]int64 // the clients' first sessions
	calls      map[string]*scriptCall
	faults     map[string]*zktest.Injection
	members    map[string]*zktest.Member
	paths      []string       // which calls have named
	heard      map[string]int // events of which there was a word
	semaphores map[string]*zklock.Semaphore
	asked      map[fault.Op]int
	other      *session.Session // of another program

	mu     sync.Mutex // guards events, and what calls' goroutines write
	events []string
}

// scriptCall is a call of a client, by its name in the script.
type scriptCall struct {
	name     string
	paths    []string
	ctx      context.Context
	cancel   context.CancelFunc
	over     chan struct{}
	finish   chan struct{} // see the verb finish
	hold     *zklock.Hold  // guarded by stage.mu, as all below
	err      error
	checked  bool // hold has been
	unlocked bool
}

// clear begins with nothing.
func (st *stage) clear() {
	st.clients, st.first = map[string]*locktest.Client{}, map[string]int64{}
	st.calls, st.faults, st.paths = map[string]*scriptCall{}, map[string]*zktest.Injection{}, nil
	st.members = map[string]*zktest.Member{"leader": st.Server.Leader()}
	st.semaphores = map[string]*zklock.Semaphore{}
	st.heard, st.asked = map[string]int{}, st.Server.Requests()
}

// end ends a scene: all has been released, nothing is left.
func (st *stage) end(what string) {
	st.Helper()
	for _, f := range st.faults {
		f.Remove()
	}
	for _, c := range st.calls {
		c.cancel()
		synctest.Wait()
		require.True(st, st.settled(c), "at the end of %s: the call of %s has neither failed nor been released", what, c.name)
	}
	for _, p := range st.paths {
		st.NothingLeft(p)
	}
	for _, c := range st.clients {
		require.NoError(st, c.Close())
	}
	st.clear()
}

// settled reports whether a call has failed, or its hold has ended.
func (st *stage) settled(c *scriptCall) bool {
	select {
	case <-c.over:
	default:
		return false
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	return c.hold == nil || c.unlocked || c.hold.Context().Err() != nil
}

// step plays a line and writes what came of it.
func (st *stage) step(out *strings.Builder, pos, line string) {
	st.Helper()
	words := strings.Fields(line)
	args := scriptArgs{stage: st, at: pos + ": " + line, words: nil, options: map[string]string{}}
	for _, word := range words {
		if k, v, ok := strings.Cut(word, "="); ok {
			args.options[k] = v
		} else {
			args.words = append(args.words, word)
		}
	}
	said := ""
	if do := stageVerbs[words[0]]; do != nil {
		args.words = args.words[1:]
		said = do(args)
	} else {
		require.Greater(st, len(args.words), 1, args.at)
		do := callVerbs[args.words[1]]
		require.NotNil(st, do, "%s: no such verb", args.at)
		args.words = append(args.words[:1], args.words[2:]...)
		said = do(args)
	}
	for k := range args.options {
		require.Fail(st, "an option that the verb does not have", "%s: %s", args.at, k)
	}
	synctest.Wait()
	st.check()
	st.mu.Lock()
	defer st.mu.Unlock()
	slices.SortStableFunc(st.events, func(a, b string) int { return strings.Compare(firstWord(a), firstWord(b)) })
	for _, event := range st.events {
		fmt.Fprintln(out, event)
	}
	st.events = nil
	if said != "" {
		fmt.Fprintln(out, said)
	}
}

// firstWord is the name of the call that an event is of.
func firstWord(event string) string {
	name, _, _ := strings.Cut(event, " ")
	return strings.TrimSuffix(name, ":")
}

// check demands that each new hold has all its znodes, of its client's session and of one transaction.
func (st *stage) check() {
	st.Helper()
	for _, c := range st.calls {
		st.mu.Lock()
		h, checked := c.hold, c.checked
		c.checked = true
		st.mu.Unlock()
		if h == nil || checked || h.Err() != nil {
			continue
		}
		st.Owned(st.client(c.name), h)
		first, _ := st.Server.Node(h.Node())
		var at []string
		for _, node := range h.Nodes() {
			n, ok := st.Server.Node(node)
			require.True(st, ok, node)
			require.Equal(st, first.Stat.Czxid, n.Stat.Czxid, node)
			at = append(at, path.Dir(node))
		}
		require.ElementsMatch(st, c.paths, at)
	}
}

// say records an event.
func (st *stage) say(format string, args ...any) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.events = append(st.events, fmt.Sprintf(format, args...))
}

// client returns the client whose call is so named, and dials it when it is named for the first time.
func (st *stage) client(call string, opts ...zklock.Option) *locktest.Client {
	st.Helper()
	name, _, _ := strings.Cut(call, ".")
	if st.clients[name] == nil {
		st.clients[name] = st.Client(opts...)
		st.first[name] = st.clients[name].SessionID()
	}
	return st.clients[name]
}

// start begins a call. It says at once whether that waits.
func (st *stage) start(a scriptArgs, paths []string, call locktest.Acquire) string {
	st.Helper()
	name := a.words[0]
	if before := st.calls[name]; before != nil {
		require.True(st, st.settled(before), "%s: %s has not been unlocked", a.at, name)
	}
	ctx := st.Context()
	if in := a.option("inside"); in != "" {
		ctx = st.calls[in].ctx
	}
	if in := a.option("outliving"); in != "" {
		ctx = context.WithoutCancel(st.calls[in].ctx)
	}
	c := &scriptCall{name: name, paths: paths, over: make(chan struct{}), finish: make(chan struct{})}
	if d := a.option("timeout"); d != "" {
		c.ctx, c.cancel = context.WithTimeout(ctx, a.duration(d))
	} else {
		c.ctx, c.cancel = context.WithCancel(ctx)
	}
	st.mu.Lock()
	st.calls[name] = c
	st.mu.Unlock()
	for _, p := range paths {
		if !slices.Contains(st.paths, p) {
			st.paths = append(st.paths, p)
		}
	}
	go func() {
		defer close(c.over)
		inside, h, err := call(c.ctx)
		if h != nil {
			st.holds(c, inside, h, "holds")
			context.AfterFunc(h.Context(), func() { st.told(c, h) })
			return
		}
		st.mu.Lock()
		c.err = err
		st.mu.Unlock()
		st.say("%s: %s", name, errorNames(err))
	}()
	synctest.Wait()
	select {
	case <-c.over:
		return ""
	default:
		return name + " waits"
	}
}

// holds notes that a call has a hold, and says so.
func (st *stage) holds(c *scriptCall, inside context.Context, h *zklock.Hold, as string) {
	st.mu.Lock()
	defer st.mu.Unlock()
	c.ctx, c.hold, c.checked = inside, h, false
	st.events = append(st.events, c.name+" "+as)
}

// told says why a hold has ended if it was not released.
func (st *stage) told(c *scriptCall, h *zklock.Hold) {
	st.mu.Lock()
	unlocked := c.unlocked && c.hold == h
	st.mu.Unlock()
	if cause := h.Err(); cause != nil && !unlocked && !errors.Is(cause, zklock.ErrUnlocked) {
		st.say("%s is told: %s", c.name, errorNames(cause))
	}
}

// owner says whose znode that is, and what else its name tells.
func (st *stage) owner(node string) string {
	base, mark := node, ""
	if before, ok := strings.CutSuffix(node, "-released"); ok {
		base, mark = before, "-released"
	}
	for _, name := range slices.Sorted(maps.Keys(st.calls)) {
		if c := st.calls[name]; c.hold != nil && slices.Contains(c.hold.Nodes(), base) {
			return name + mark
		}
	}
	n, ok := st.Server.Node(base)
	if !ok {
		return path.Base(node)
	}
	for name, c := range st.clients {
		if id := n.Stat.EphemeralOwner; id != 0 && id == c.SessionID() {
			return name + mark
		}
	}
	return path.Base(node)
}

// scriptArgs are a line's words without its verb, and its options.
type scriptArgs struct {
	*stage
	at      string
	words   []string
	options map[string]string
}

// option takes an option.
func (a scriptArgs) option(key string) string {
	v := a.options[key]
	delete(a.options, key)
	return v
}

// word returns the i-th word.
func (a scriptArgs) word(i int) string {
	a.Helper()
	require.Greater(a, len(a.words), i, "%s: a word is missing", a.at)
	return a.words[i]
}

// number returns the i-th word as a number.
func (a scriptArgs) number(i int) int {
	a.Helper()
	n, err := strconv.Atoi(a.word(i))
	require.NoError(a, err, a.at)
	return n
}

func (a scriptArgs) duration(text string) time.Duration {
	a.Helper()
	d, err := time.ParseDuration(text)
	require.NoError(a, err, a.at)
	return d
}

// errorNames says which of the errors that a user can ask for an error is.
func errorNames(err error) string {
	if err == nil {
		return "ok"
	}
	var names []string
	for _, e := range namedErrors {
		if errors.Is(err, e.err) {
			names = append(names, e.name)
		}
	}
	if names == nil {
		return err.Error()
	}
	return strings.Join(names, ", ")
}

var namedErrors = []struct {
	name string
	err  error
}{
	{"ErrBusy", zklock.ErrBusy}, {"ErrUnlocked", zklock.ErrUnlocked}, {"ErrLost", zklock.ErrLost},
	{"ErrSessionExpired", zklock.ErrSessionExpired}, {"ErrLeaseOver", zklock.ErrLeaseOver},
	{"ErrNodeDeleted", zklock.ErrNodeDeleted}, {"ErrMaxHold", zklock.ErrMaxHold},
	{"ErrUnreachable", zklock.ErrUnreachable}, {"ErrAuth", zklock.ErrAuth}, {"ErrDeadlock", zklock.ErrDeadlock},
	{"ErrNoLeader", zklock.ErrNoLeader}, {"ErrClosed", zklock.ErrClosed}, {"ErrPath", zklock.ErrPath},
	{"ErrConflict", zklock.ErrConflict}, {"ErrInvalid", zklock.ErrInvalid}, {"ErrTooLarge", zklock.ErrTooLarge},
	{"ErrNoRoom", zklock.ErrNoRoom}, {"ErrUnknownOutcome", zklock.ErrUnknownOutcome},
	{"ErrNoAuth", zk.ErrNoAuth},
	{"ErrNotRun", zklock.ErrNotRun}, {"ErrNotRecorded", zklock.ErrNotRecorded},
	{"Canceled", context.Canceled}, {"DeadlineExceeded", context.DeadlineExceeded},
}
