package zktest_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/ensemble"
	"github.com/zklock/locker/zktest"
)

// This server must answer the same scripts as a real one does, field by field. TestScripts… runs
// the cases of cases_test.go, TestRandomPrograms… programs of 100 operations from several sessions.
// To run more of those:
//
//	ZKTEST_SEEDS=100000 go test ./zktest -run TestRandomPrograms -timeout 0      seeds 0 to 99999
//	ZKTEST_SEED=4711 go test ./zktest -run TestRandomPrograms -v                 that one, with its trace
const defaultSeeds = 500

type target struct {
	name string
	dial func() (net.Conn, error)
	home *raw // creates the scripts' directories
}

// noSweep is longer than any run: containers must not be deleted, and take zxids, at two different
// moments.
const noSweep = 24 * time.Hour

// targets starts both servers. The real one has the same tick, and TTL nodes switched on.
func targets(t *testing.T) []*target {
	t.Helper()
	real := ensemble.Start(t, 1, ensemble.WithTick(2*time.Second),
		ensemble.WithContainerCheck(noSweep),
		ensemble.WithJVM("-Dzookeeper.extendedTypesEnabled=true", "-Dzookeeper.snapCount=10000000"))
	ours := zktest.Run(t, zktest.WithSweepInterval(noSweep), sameVersion(t, real))
	var ts []*target
	for _, a := range [][2]string{{"zktest", ours.Addr()}, {"real", real.Nodes[0].Addr()}} {
		tg := &target{name: a[0], dial: func() (net.Conn, error) {
			return net.DialTimeout("tcp", a[1], answerTimeout)
		}}
		nc, err := tg.dial()
		require.NoError(t, err)
		tg.home = &raw{name: "home", nc: nc}
		_, _, err = tg.home.shake(40000, 0)
		require.NoError(t, err)
		t.Cleanup(func() { _ = nc.Close() })
		ts = append(ts, tg)
	}
	return ts
}

// sameVersion gives this server the real one's version. Debian's 3.8.0 stands for its line.
func sameVersion(t *testing.T, real *ensemble.Ensemble) zktest.Option {
	t.Helper()
	v, err := real.Leader(t).Version()
	require.NoError(t, err)
	line := zktest.Version(v[:strings.LastIndexByte(v, '.')])
	if line != zktest.Version38 && line != zktest.Version39 {
		t.Skipf("this server has no behaviour of ZooKeeper %s", v)
	}
	return zktest.WithVersion(line)
}

// run executes a program in a directory of its own and returns the answers.
func (tg *target) run(dir string, lines []string, sorted bool) ([]string, error) {
	o := (&out{}).i32(1).i32(1).str(dir).i32(0).i32(1).i32(31).str("world").str("anyone").i32(0)
	if err := tg.home.send(o.b); err != nil {
		return nil, err
	}
	b, err := tg.home.recv()
	if err != nil {
		return nil, err
	}
	i := in{b}
	i.i32()
	s := newScript(tg.dial)
	s.root, s.base, s.sorted = dir, i.i64(), sorted
	if code := i.i32(); code != 0 {
		return nil, fmt.Errorf("create %s: %d", dir, code)
	}
	for _, l := range lines {
		if err := s.step(l); err != nil {
			return s.trace, fmt.Errorf("%s: %w", l, err)
		}
	}
	err = s.end()
	// A real server that was asked to watch a null path can't remove that watch, and so does not
	// hang up after a close.
	if err == nil && len(s.left) > 0 && tg.name == "zktest" {
		err = fmt.Errorf("does not hang up after the close of %v", s.left)
	}
	return s.trace, err
}

// compare runs a program on both servers at the same time.
func compare(t *testing.T, ts []*target, dir string, lines []string, sorted bool) {
	t.Helper()
	var traces [2][]string
	var errs [2]error
	done := make(chan struct{})
	go func() {
		defer close(done)
		traces[1], errs[1] = ts[1].run(dir, lines, sorted)
	}()
	traces[0], errs[0] = ts[0].run(dir, lines, sorted)
	<-done
	for i, err := range errs {
		require.NoError(t, err, "%s in %s", ts[i].name, dir)
	}
	if strings.Join(traces[0], "\n") == strings.Join(traces[1], "\n") {
		if os.Getenv("ZKTEST_SEED") != "" {
			showTrace(t, traces[1])
		}
		return
	}
	for k := 0; k < max(len(traces[0]), len(traces[1])); k++ {
		line := func(tr []string) string {
			if k < len(tr) {
				return tr[k]
			}
			return "(nothing)"
		}
		if a, b := line(traces[0]), line(traces[1]); a != b {
			before := traces[1][:min(k, len(traces[1]))]
			t.Fatalf("%s: program:\n%s\n\nanswers differ at %d\nzktest: %s\nreal:   %s\nbefore: %s",
				dir, strings.Join(lines, "\n"),
				k, a, b, strings.Join(before[max(0, len(before)-3):], "\n        "))
		}
	}
}

func TestScriptsAreAnsweredAsByARealServer(t *testing.T) {
	ts := targets(t)
	for n, c := range cases() {
		t.Run(c.name, func(t *testing.T) {
			compare(t, ts, fmt.Sprintf("/case%d", n), c.lines, false)
		})
	}
	t.Logf("%d cases", len(cases()))
}

func TestRandomProgramsAreAnsweredAsByARealServer(t *testing.T) {
	ts := targets(t)
	first, n := 0, defaultSeeds
	if v := os.Getenv("ZKTEST_SEEDS"); v != "" {
		var err error
		n, err = strconv.Atoi(v)
		require.NoError(t, err)
	}
	if v := os.Getenv("ZKTEST_SEED"); v != "" {
		var err error
		first, err = strconv.Atoi(v)
		require.NoError(t, err)
		n = 1
	}
	start := time.Now()
	for seed := first; seed < first+n; seed++ {
		compare(t, ts, fmt.Sprintf("/seed%d", seed), program(uint64(seed), 100), true)
	}
	t.Logf("%d programs in %v", n, time.Since(start).Round(time.Millisecond))
}

// program makes a random program of n operations from three sessions on a small tree, so that they
// meet often.
func program(seed uint64, n int) []string {
	p := author{rand.New(rand.NewPCG(seed, 17))}
	lines := []string{"a create $/a", "b create $/b", "c create $/c", "a create $/a/b d=x",
		"b create $/b/a"}
	for range n - len(lines) {
		who := p.pick("a", "b", "c")
		if p.IntN(60) == 0 { // a new session replaces it
			lines = append(lines, who+" close", who+" connect")
			continue
		}
		lines = append(lines, who+" "+p.op())
	}
	return lines
}

// author writes the lines of a random program.
type author struct{ *rand.Rand }

func (p author) pick(v ...string) string { return v[p.IntN(len(v))] }

func (p author) path() string {
	path := "$/" + p.pick("a", "b", "c")
	for depth := p.IntN(10); depth >= 5; depth -= 4 { // half of them one deep, few three
		path += "/" + p.pick("a", "b", "c")
	}
	return path
}

func (p author) version() string { return p.pick("", "", " v=0", " v=1", " v=2") }

func (p author) watch() string { return p.pick("", " w") }

func (p author) acl() string {
	return p.pick("", "", "", "", " acl=read", " acl=31:auth:", " acl=12:world:anyone,31:auth:",
		" acl=31:ip:127.0.0.1")
}

func (p author) create() string {
	return p.path() + p.pick("", "/", "/s-") + " d=" + p.pick("1", "22", "null") + p.acl() + " m=" +
		p.pick("p", "p", "p", "e", "s", "es", "c")
}

// part is one operation of a multi.
func (p author) part() string {
	switch p.IntN(5) {
	case 0, 1:
		return "create " + p.create()
	case 2:
		return "delete " + p.path() + p.version()
	case 3:
		return "set " + p.path() + " d=m" + p.version()
	}
	return "check " + p.path() + p.version()
}

func (p author) op() string {
	switch x := p.IntN(100); {
	case x < 22:
		return p.pick("create ", "create ", "create2 ", "createc ") + p.create()
	case x < 36:
		return "delete " + p.path() + p.version()
	case x < 46:
		return "set " + p.path() + " d=" + p.pick("x", "yy", "null") + p.version()
	case x < 58:
		return "exists " + p.path() + p.watch()
	case x < 66:
		return "get " + p.path() + p.watch()
	case x < 74:
		return p.pick("ls ", "ls2 ") + p.path() + p.watch()
	case x < 77:
		return "setacl " + p.path() + p.acl() + p.version()
	case x < 79:
		return p.pick("getacl ", "count ", "sync ") + p.path()
	case x < 82:
		return "addwatch " + p.path() + " t=" + p.pick("0", "1")
	case x < 84:
		return p.pick("rmwatch ", "chkwatch ") + p.path() + " t=" + p.pick("1", "2", "3")
	case x < 85:
		return "ephemerals " + p.path()
	case x < 87:
		return "auth digest " + p.pick("u:p", "v:q")
	case x < 88:
		return "multiread get " + p.path() + " ; ls " + p.path() + " ; get " + p.path()
	case x < 90:
		return "setwatches2 z=" + p.pick("0", "20", "60") + " d=" + p.path() + " e=" + p.path() +
			" c=" + p.path() + " p=" +
			p.path() + " r=" + p.path()
	default:
		parts := []string{p.part()}
		for range p.IntN(4) {
			parts = append(parts, p.part())
		}
		return "multi " + strings.Join(parts, " ; ")
	}
}

func showTrace(t *testing.T, tr []string) { t.Logf("trace:\n%s", strings.Join(tr, "\n")) }
