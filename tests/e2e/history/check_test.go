package history_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/e2e/history"
)

// bound is far beyond what a history of a few operations takes.
const bound = time.Minute

const path = "/lock"

// A scene is a short history, written by hand. Instants are whole numbers.
type scene struct {
	history.History
	ids int
}

// hold adds a hold: Lock was called at call and returned at ret; the hold was seen alive until end,
// and released just after.
func (s *scene) hold(
	l history.Load, token int64, call, ret, end history.Stamp, change ...func(*history.Op),
) *scene {
	s.ids++
	op := history.Op{
		Load: l, Kind: history.Hold, ID: s.ids, Client: s.ids, Worker: "worker",
		Paths: []string{path}, Call: call, Return: ret, Token: token,
		Alive: end, Sure: end, Safe: end + 50, Release: end, Released: end + 1, Outcome: history.OK,
	}
	for _, f := range change {
		f(&op)
	}
	s.Ops = append(s.Ops, op)
	return s
}

func lost(o *history.Op)    { o.Outcome = history.Lost }
func unknown(o *history.Op) { o.Outcome, o.Released = history.Unknown, history.Forever }
func shared(o *history.Op)  { o.Shared = true }
func permits(n int) func(*history.Op) {
	return func(o *history.Op) { o.Permits = n }
}

// add adds an operation that is not a hold; its path and its answer are those given.
func (s *scene) add(
	l history.Load, k history.Kind, call, ret history.Stamp, change func(*history.Op),
) *scene {
	op := history.Op{Load: l, Kind: k, Worker: "worker", Paths: []string{path}, Call: call,
		Return: ret, Outcome: history.OK}
	change(&op)
	s.Ops = append(s.Ops, op)
	return s
}

func (s *scene) write(
	l history.Load, token int64, prev, value string, call, ret history.Stamp,
	change ...func(*history.Op),
) *scene {
	return s.add(l, history.Write, call, ret, func(o *history.Op) {
		o.Token, o.Prev, o.Value, o.Seq = token, prev, value, int(call)
		for _, f := range change {
			f(o)
		}
	})
}

func (s *scene) read(l history.Load, token int64, value string, call, ret history.Stamp) *scene {
	return s.add(l, history.Read, call, ret, func(o *history.Op) {
		o.Token, o.Value = token, value
	})
}

func (s *scene) leader(token int64, call, ret history.Stamp) *scene {
	return s.add(history.Election, history.Leader, call, ret, func(o *history.Op) {
		o.Token = token
	})
}

func (s *scene) check(id int, call, ret history.Stamp) *scene {
	return s.add(history.Mutex, history.Check, call, ret, func(o *history.Op) { o.ID = id })
}

func newScene() *scene { return &scene{History: history.History{Size: 3}} }

func TestCorrectHistoriesPass(t *testing.T) {
	const m, rw, sem = history.Mutex, history.RW, history.Semaphore
	const el, fen, reg = history.Election, history.Fenced, history.MultiRegister
	for name, s := range map[string]*scene{
		"one after the other": newScene().hold(m, 1, 0, 10,
			20).hold(m, 2, 5, 25, 30),
		"the next one before the release has ended": newScene().hold(m, 1, 0, 10, 20,
			func(o *history.Op) { o.Released = 40 }).hold(m, 2, 5, 25, 30),
		"the next one after a loss": newScene().hold(m, 1, 0, 10, 20,
			lost).hold(m, 2, 5, 80, 90),
		"the next one after a release of which nothing was heard": newScene().hold(m, 1, 0, 10, 20,
			unknown).hold(m, 2, 5, 25, 30),
		"a holder that was stopped when it got the lock": newScene().
			hold(m, 1, 0, 100, 0, lost, func(o *history.Op) {
				o.Sure, o.Alive, o.Safe = 0, 0, 0
			}).hold(m, 2, 5, 50, 60),
		"readers together": newScene().hold(rw, 1, 0, 10, 50, shared).hold(rw, 2,
			0, 11, 40, shared).hold(rw, 3, 0, 60, 70),
		"permits together": newScene().hold(sem, 1, 0, 10, 50,
			permits(2)).hold(sem, 2, 0, 11, 40, permits(1)).hold(sem, 3, 0, 60, 70, permits(2)),
		"a leader that is seen": newScene().hold(el, 4, 0, 10, 20).leader(4, 12,
			14).leader(0, 30, 31),
		"a leader that does not know it yet": newScene().leader(4, 5, 6).hold(el, 4, 0, 10, 20),
		"a leader that has lost, to be found": newScene().hold(el, 4, 0, 10, 20, lost).leader(4, 25,
			26).leader(0, 90, 91),
		"a check of a hold": newScene().hold(m, 1, 0, 10, 20).check(1, 12, 13),
		"writes on top of each other": newScene().write(fen, 1, "", "a", 1, 2).write(fen, 1,
			"a", "b", 3, 4).read(fen, 2, "b", 5, 6).write(fen, 2, "b", "c", 7, 8),
		"a write without an answer, made": newScene().write(reg, 1, "", "a", 1, 2,
			unknown).read(reg, 2, "a", 5, 6),
		"a write without an answer, not made": newScene().write(reg, 1, "", "a", 1, 2,
			unknown).read(reg, 2, "", 5, 6).write(reg, 2, "", "b", 7, 8),
		"a write that was refused": newScene().write(fen, 2, "", "b", 1, 2).write(fen, 1,
			"", "a", 3, 4, func(o *history.Op) {
				o.Outcome = history.Refused
			}).read(fen, 2, "b", 5, 6),
	} {
		t.Run(name, func(t *testing.T) {
			require.Empty(t, s.Linearize(bound))
			require.Empty(t, s.Overlaps())
			require.Zero(t, s.Losses(fen))
		})
	}
}

func TestLinearizeReportsHistoriesThatNoOrderExplains(t *testing.T) {
	const m, rw, sem = history.Mutex, history.RW, history.Semaphore
	const el, fen, reg = history.Election, history.Fenced, history.MultiRegister
	for name, s := range map[string]*scene{
		"two owners": newScene().hold(m, 1, 0, 10, 30).hold(m, 2, 0, 12,
			20),
		"an owner while another is sure": newScene().hold(m, 1, 0, 10, 30, lost).hold(m, 2, 0,
			12, 20),
		"an owner before the release": newScene().hold(m, 1, 0, 10, 30, unknown).hold(m, 2,
			0, 12, 20),
		"a token that goes back": newScene().hold(m, 2, 0, 10, 20).hold(m, 1, 0, 25,
			30),
		"a token given twice": newScene().hold(m, 1, 0, 10, 20).hold(m, 1, 0, 25,
			30),
		"two owners of one of several paths": newScene().hold(history.Multi, 1, 0, 10,
			30).hold(history.Multi, 2, 0, 12, 20,
			func(o *history.Op) { o.Paths = []string{"/other", path} }),
		"a reader beside a writer": newScene().hold(rw, 1, 0, 10, 30).hold(rw, 2, 0, 12,
			20, shared),
		"a writer beside a reader": newScene().hold(rw, 1, 0, 10, 30, shared).hold(rw, 2,
			0, 12, 20),
		"more permits than there are": newScene().hold(sem, 1, 0, 10, 30,
			permits(2)).hold(sem, 2, 0, 12, 20, permits(2)),
		"a leader that has resigned":  newScene().hold(el, 4, 0, 10, 20).leader(4, 30, 31),
		"no leader while one leads":   newScene().hold(el, 4, 0, 10, 40).leader(0, 20, 21),
		"another leader than the one": newScene().hold(el, 4, 0, 10, 40).leader(3, 20, 21),
		"a check of a hold that is over": newScene().hold(m, 1, 0, 10, 20).hold(m, 2, 0, 25,
			40).check(1, 30, 31),
		"an acknowledged write that was lost": newScene().write(fen, 1, "", "a", 1, 2).write(fen, 2,
			"", "b", 3, 4),
		"a stale write that was accepted": newScene().write(reg, 2, "", "b", 1, 2).write(reg, 1,
			"b", "a", 3, 4),
		"a stale read": newScene().write(reg, 1, "", "a", 1, 2).read(reg, 2,
			"", 3, 4),
		"a write that is gone at the end": newScene().write(reg, 1, "", "a", 1, 2).write(reg, 1,
			"a", "b", 3, 4).read(reg, 9, "a", 5, 6),
		"a refused write that was made": newScene().write(fen, 2, "", "b", 1, 2).
			write(fen, 1, "b", "a", 3, 4, func(o *history.Op) {
				o.Outcome = history.Refused
			}).read(fen, 2, "a", 5, 6),
	} {
		t.Run(name, func(t *testing.T) {
			bad := s.Linearize(bound)
			require.Len(t, bad, 1)
			require.Contains(t, bad[0], path)
		})
	}
}

func TestOverlapsNoticesTwoHolders(t *testing.T) {
	ms := history.Stamp(time.Millisecond)
	for name, c := range map[string]struct {
		s    *scene
		want string // the clock by which they overlap
	}{
		"by the context": {newScene().hold(history.Mutex, 1, 0, 10, 30, lost, func(o *history.Op) {
			o.Sure, o.Safe = 11, 11
		}).hold(history.Mutex, 2, 0, 20, 40), "the context"},
		"by Err": {newScene().hold(history.Mutex, 1, 0, 10, 30, lost, func(o *history.Op) {
			o.Alive, o.Safe = 11, 11
		}).hold(history.Mutex, 2, 0, 20, 40), "Err"},
		"by SafeUntil": {newScene().hold(history.Mutex, 1, 0, 10, 11, lost, func(o *history.Op) {
			o.Safe = 30
		}).hold(history.Mutex, 2, 0, 20, 40), "SafeUntil"},
		"by SafeUntil, which a release that is on its way does not prolong": {
			newScene().hold(history.Mutex, 1, 0, 10, 25, unknown).hold(history.Mutex, 2, 0, 20, 40),
			"SafeUntil"},
		"readers and a writer": {newScene().hold(history.RW, 1, 0, 10, 30, shared).hold(history.RW,
			2, 0, 20, 40), "Err"},
		"permits": {newScene().hold(history.Semaphore, 1, 0, 10, 30,
			permits(2)).hold(history.Semaphore, 2, 0, 20, 40, permits(2)), "Err"},
		"one of several paths": {newScene().hold(history.Multi, 1, 0, 10, 30).
			hold(history.Multi, 2, 0, 20, 40,
				func(o *history.Op) { o.Paths = []string{"/other", path} }), "Err"},
		"a stop long before does not excuse it": {func() *scene {
			s := newScene().hold(history.Mutex, 1, 0, 1000*ms, 3000*ms, lost).hold(history.Mutex, 2,
				0, 2000*ms, 4000*ms)
			s.Stops = []history.Stop{{Client: 1, From: 100 * ms, To: 200 * ms}}
			return s
		}(), "the context"},
		"a stop of another process does not excuse it": {func() *scene {
			s := newScene().hold(history.Mutex, 1, 0, 10, 30, lost).hold(history.Mutex, 2, 0, 20,
				40)
			s.Stops = []history.Stop{{Client: 3, From: 15, To: 19}}
			return s
		}(), "the context"},
		"nor a stall long before": {
			newScene().hold(history.Mutex, 1, 0, 100*ms, 3000*ms, lost, func(o *history.Op) {
				o.Stall, o.Resumed = 200*ms, 250*ms
			}).
				hold(history.Mutex, 2, 0, 2000*ms, 4000*ms), "the context"},
	} {
		t.Run(name, func(t *testing.T) {
			bad := strings.Join(c.s.Overlaps(), "\n")
			require.Contains(t, bad, "when "+c.want+" of")
			require.Contains(t, bad, path)
		})
	}
}

func TestTheOverlapCheckEndsAContextAtTheStopOfItsProcessButNotAnErrCall(t *testing.T) {
	stopped := func(sure history.Stamp) *scene {
		s := newScene().
			// seen alive right after the stop
			hold(history.Mutex, 1, 0, 10, 60, lost, func(o *history.Op) {
				o.Sure, o.Safe = sure, 15
			}).
			hold(history.Mutex, 2, 0, 30, 70)
		s.Stops = []history.Stop{{Client: 1, From: 20, To: 55}}
		return s
	}
	require.Empty(t, stopped(19).Overlaps())
	require.Equal(t, 1, stopped(19).Count().Cut)
	bad := stopped(60).Overlaps()
	require.Len(t, bad, 1)
	require.Contains(t, bad[0], "when Err of")
	require.NotEmpty(t, stopped(60).Linearize(bound))
}

func TestLossesCountsWritesThatReplaceAValueTheirWriterDidNotRead(t *testing.T) {
	s := newScene()
	s.write(history.Unfenced, 1, "", "a", 1, 2).write(history.Unfenced, 2, "a", "b", 3, 4).
		write(history.Unfenced, 1, "a", "c", 5, 6).write(history.Unfenced, 3, "c", "d", 7,
		8).write(history.Unfenced, 2, "b", "e", 9, 10)
	require.Equal(t, 2, s.Losses(history.Unfenced))
	require.Empty(t, s.Linearize(bound), "reported, and not asserted")
	f := newScene().hold(history.Mutex, 1, 0, 10, 20).hold(history.Mutex, 2, 0, 25, 30, lost).
		hold(history.RW, 2, 0, 25, 30, unknown).write(history.Fenced, 1, "", "a", 1, 2,
		func(o *history.Op) { o.Outcome = history.Refused }).Count()
	require.Equal(t, map[history.Load]int{history.Mutex: 2, history.RW: 1}, f.Cycles)
	require.Equal(t, []int{1, 1, 1}, []int{f.Lost, f.Unknown, f.Refused})
}

func TestCheckThatTakesTooLongFails(t *testing.T) {
	s := newScene()
	for i := range 400 { // all at once, and impossible at the end: porcupine would search forever
		s.write(history.MultiRegister, 0, "", "", 0, 1000, func(o *history.Op) {
			o.Prev, o.Value = string(rune('a'+i%20)), string(rune('a'+(i*7+3)%20))
		})
	}
	s.write(history.MultiRegister, 0, "", "a", 0, 1)
	bad := s.Linearize(50 * time.Millisecond)
	require.Len(t, bad, 1)
	require.Contains(t, bad[0], "not checked within 50ms")
}
