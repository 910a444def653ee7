package zklock_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"path"
	"regexp"
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

// Scripts of what clients do to locks, and of what happens to them meanwhile: testdata/scripts.
// Each file runs on a server of its own in simulated time. A block is a moment: its lines happen
// one after the other, each as soon as nothing more follows from the line before. Below the block's
// ---- stands what the calls made of it. Time passes only at sleep, later and await, so that
// whatever else stands there happened at once; what takes time, as an unlock whose reply is lost,
// goes on while the script does. What one line has caused stands in the order of the calls' names;
// what must not happen before a line has a block of its own before it. `go test ./zklock -run
// Scripts -rewrite` writes the outcomes again.
//
//	a lock /l              a call of client a, which connects when it is first named; a.2 is another call of a
//	a..3 lock /l           calls a, a.2 and a.3, one after the other
//	a cancel, a unlock     the end of the call's ctx; the release of its hold
//	a cancel; b unlock     two steps on a line, and what comes of them on a line, too
//	sleep 10s              time passes
//	await 30s a            time passes until a's call has returned, or a's hold has ended
//	show /l                whose znodes are there, in the order of their numbers
//	most                   as a number: the greatest int, which depends on the processor
//	let X: a               from here on X stands for a
//	for X: a | b           what follows, with a in place of X, and again with b, each as a scene of its own; its outcome
//	                       stands there once, if it is always the same
//
// script_verbs_test.go has all verbs. A call that succeeded is checked: its znode is there, and its
// session's, and the token is its czxid. At the end of a scene every call has ended, and no znode
// and no watch is left.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, file string) {
		locktest.Simulate(t, func(s *locktest.Sim) {
			st := &stage{Sim: s}
			st.clear()
			datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
				text := strings.ReplaceAll(d.FullCmd()+"\n"+d.Input, "\\\n", "")
				return st.play(d.Pos, strings.Split(strings.TrimSpace(text), "\n"))
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
	paths      []string // which calls have named
	semaphores map[string]*zklock.Semaphore
	asked      map[fault.Op]int // requests before the scene
	since      map[fault.Op]int // requests when they were last said
	// how many events each client had been told of when that was last said
	heard  map[string]int
	macros []string         // what stands for what, by turns
	other  *session.Session // of another program

	mu      sync.Mutex // guards what follows, and what calls' goroutines write
	events  []string
	answers []string // of what takes time
}

// scriptCall is a call of a client, by its name in the script.
type scriptCall struct {
	name     string
	paths    []string
	ctx      context.Context
	cancel   context.CancelFunc
	over     chan struct{}
	finish   chan struct{} // see the verb finish
	st       *stage
	hold     *zklock.Hold // guarded by stage.mu, as all below
	err      error
	checked  bool // hold has been
	unlocked bool
}

// held returns the call's hold; nil: it has failed, or waits.
func (c *scriptCall) held() *zklock.Hold {
	c.st.mu.Lock()
	defer c.st.mu.Unlock()
	return c.hold
}

// clear begins with nothing.
func (st *stage) clear() {
	st.clients, st.first = map[string]*locktest.Client{}, map[string]int64{}
	st.calls, st.faults, st.paths = map[string]*scriptCall{}, map[string]*zktest.Injection{}, nil
	st.members = map[string]*zktest.Member{"leader": st.Server.Leader()}
	st.semaphores, st.heard = map[string]*zklock.Semaphore{}, map[string]int{}
	st.asked, st.since = st.Server.Requests(), st.Server.Requests()
	st.mu.Lock()
	defer st.mu.Unlock()
	st.events, st.answers = nil, nil
}

// play plays the lines of a moment, and tells what came of them.
func (st *stage) play(pos string, lines []string) string {
	st.Helper()
	var out strings.Builder
	for i, line := range lines {
		line = strings.NewReplacer(st.macros...).Replace(strings.TrimSpace(line))
		if let, ok := strings.CutPrefix(line, "let "); ok {
			name, text, _ := strings.Cut(let, ": ")
			st.macros = append(st.macros, name, text)
			continue
		}
		if each, ok := strings.CutPrefix(line, "for "); ok {
			return out.String() + st.each(pos, each, lines[i+1:])
		}
		if strings.HasPrefix(line, "scene ") {
			st.step(&out, pos, line)
			continue
		}
		var all strings.Builder
		steps := stepsOf(line)
		for _, step := range steps {
			st.step(&all, pos, step)
		}
		said := strings.TrimSpace(all.String())
		if len(steps) > 1 {
			said = strings.ReplaceAll(said, "\n", "; ")
		}
		if said != "" {
			fmt.Fprintln(&out, said)
		}
	}
	return out.String()
}

// stepsOf returns the steps of a line: those between semicolons, and of "a..3 lock /l" one for each
// call.
func stepsOf(line string) (steps []string) {
	for step := range strings.SplitSeq(line, "; ") {
		calls, rest, _ := strings.Cut(step, " ")
		first, last, several := strings.Cut(calls, "..")
		if !several {
			steps = append(steps, step)
			continue
		}
		client, from, _ := strings.Cut(first, ".")
		i, _ := strconv.Atoi(cmp.Or(from, "1"))
		for n, _ := strconv.Atoi(last); i <= n; i++ {
			steps = append(steps, strings.TrimSuffix(fmt.Sprint(client, ".", i), ".1")+" "+rest)
		}
	}
	return steps
}

// each plays lines for each of the values of "X, Y: a, b | c, d". If not all outcomes are the same,
// each has its values as a heading.
func (st *stage) each(pos, values string, lines []string) string {
	st.Helper()
	head, values, ok := strings.Cut(values, ": ")
	require.True(st, ok, "%s: no values", pos)
	names := strings.Split(head, ", ")
	var headings, outs []string
	before := st.macros
	for value := range strings.SplitSeq(values, " | ") {
		value = strings.TrimSpace(value)
		st.end(pos + ", before " + value)
		st.macros = slices.Clone(before)
		words := strings.Split(value, ", ")
		require.Len(st, words, len(names), "%s: %s", pos, value)
		for i, name := range names {
			st.macros = append(st.macros, name, words[i])
		}
		out := st.play(pos, lines)
		if n := len(outs) - 1; n >= 0 && outs[n] == out {
			headings[n] += " | " + value
		} else {
			headings, outs = append(headings, value), append(outs, out)
		}
	}
	st.macros = before
	if len(outs) == 1 {
		return outs[0]
	}
	var all strings.Builder
	for i, out := range outs {
		fmt.Fprintf(&all, "%s:\n%s", headings[i], out)
	}
	return all.String()
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
		require.True(st, st.settled(c),
			"at the end of %s: the call of %s has neither failed nor been released", what, c.name)
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
	slices.Sort(st.answers) // they come from goroutines of their own
	all := append(st.events, st.answers...)
	slices.SortStableFunc(all, func(a, b string) int {
		return strings.Compare(firstWord(a), firstWord(b))
	})
	for _, event := range all {
		fmt.Fprintln(out, event)
	}
	st.events, st.answers = nil, nil
	if said != "" {
		fmt.Fprintln(out, strings.TrimSpace(said))
	}
}

// firstWord is the name of the call that an event is of.
func firstWord(event string) string {
	name, _, _ := strings.Cut(event, " ")
	return strings.TrimSuffix(name, ":")
}

// check demands that each new hold has all its znodes, of its client's session and of one
// transaction.
func (st *stage) check() {
	st.Helper()
	for _, c := range st.calls {
		st.mu.Lock()
		h, checked := c.hold, c.checked
		c.checked = h != nil
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

// client returns the client whose call is so named, and dials it when it is named for the first
// time.
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
	c := &scriptCall{st: st, name: name, paths: paths, over: make(chan struct{}),
		finish: make(chan struct{})}
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

// during does what may take time: then, or if it fails, the script tells how it ended. Within=1s:
// it takes no longer.
func (a scriptArgs) during(what string, do func() error) string {
	a.Helper()
	st := a.stage
	if most := a.option("within"); most != "" {
		began, err := time.Now(), do()
		require.LessOrEqual(a, time.Since(began), a.duration(most), a.at)
		return what + ": " + errorNames(err)
	}
	slow := make(chan struct{})
	over := make(chan struct{})
	go func() {
		defer close(over)
		err := do()
		st.mu.Lock()
		defer st.mu.Unlock()
		select {
		case <-slow:
		default:
			if err == nil {
				return
			}
		}
		st.answers = append(st.answers, what+": "+errorNames(err))
	}()
	synctest.Wait()
	select {
	case <-over:
		return ""
	default:
		close(slow)
		return what + " goes on"
	}
}

// owner says whose znode that is, and what else its name tells.
func (st *stage) owner(node string) string {
	base, mark := node, ""
	if before, ok := strings.CutSuffix(node, "-released"); ok {
		base, mark = before, "-released"
	}
	for _, name := range slices.Sorted(maps.Keys(st.calls)) {
		if c := st.calls[name]; c.held() != nil && slices.Contains(c.held().Nodes(), base) {
			return name + mark
		}
	}
	n, ok := st.Server.Node(base)
	if !ok {
		return path.Base(node)
	}
	for name, c := range st.clients {
		switch id := n.Stat.EphemeralOwner; id {
		case 0:
		case c.SessionID():
			return name + mark
		case st.first[name]:
			return name + "'s first session" + mark
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
	if a.word(i) == "most" {
		return math.MaxInt
	}
	return a.integer(a.word(i))
}

func (a scriptArgs) integer(text string) int {
	a.Helper()
	n, err := strconv.Atoi(text)
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
		return aZnode.ReplaceAllString(err.Error(), "(a znode)")
	}
	return strings.Join(names, ", ")
}

// aZnode is a contender's name, or most of it.
var aZnode = regexp.MustCompile(`_c_[0-9a-f-]{36}[^ ,:]*`)

var namedErrors = []struct {
	name string
	err  error
}{
	{"ErrBusy", zklock.ErrBusy}, {"ErrUnlocked", zklock.ErrUnlocked}, {"ErrLost", zklock.ErrLost},
	{"ErrSessionExpired", zklock.ErrSessionExpired}, {"ErrLeaseExpired", zklock.ErrLeaseExpired},
	{"ErrNodeDeleted", zklock.ErrNodeDeleted}, {"ErrMaxHold", zklock.ErrMaxHold},
	{"ErrUnreachable", zklock.ErrUnreachable}, {"ErrAuth", zklock.ErrAuth},
	{"ErrDeadlock", zklock.ErrDeadlock},
	{"ErrNoLeader", zklock.ErrNoLeader}, {"ErrClosed", zklock.ErrClosed},
	{"ErrPath", zklock.ErrPath},
	{"ErrConflict", zklock.ErrConflict}, {"ErrInvalid", zklock.ErrInvalid},
	{"ErrTooLarge", zklock.ErrTooLarge},
	{"ErrSessionFull", zklock.ErrSessionFull}, {"ErrUnknownOutcome", zklock.ErrUnknownOutcome},
	{"ErrNoAuth", zk.ErrNoAuth},
	{"ErrNotRun", zklock.ErrNotRun}, {"ErrNotRecorded", zklock.ErrNotRecorded},
	{"Canceled", context.Canceled}, {"DeadlineExceeded", context.DeadlineExceeded},
}
