//go:build linux

package main

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/ensemble"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// These tests show what happens to the command when the lock is lost. Sessions are short, so that
// the tests do not take long, and long enough for a busy machine: between the SIGKILL and the
// instant at which the ensemble frees the lock there is more than a second.
const lossTimeout = 6 * time.Second

func lossFlags(more ...string) []string {
	flags := []string{"run", "--session-timeout", lossTimeout.String(), "--tick", tick.String()}
	return append(flags, more...)
}

// free waits until no contender holds the lock and returns when that was.
func free(t *testing.T, s *zktest.Server, path string) time.Time {
	t.Helper()
	queued(t, s, path, 0)
	return time.Now()
}

// hold starts a command and its child, both of which ignore SIGTERM, under the lock /l.
func hold(t *testing.T, zk string, d diary, flags ...string) *process {
	t.Helper()
	p := launchHold(t, zk, d, flags...)
	d.alive(t, "child", "grandchild")
	return p
}

// launchHold is hold that does not wait for them.
func launchHold(t *testing.T, zk string, d diary, flags ...string) *process {
	t.Helper()
	return launch(t, zk, append(lossFlags(flags...), "/l", "--", testCommand, "stubborn", "diary",
		string(d), "family", "live")...)
}

// late waits for the end of the command and its child and returns for how long one of them was
// alive after at.
func (d diary) late(t *testing.T, at time.Time) (most time.Duration) {
	t.Helper()
	d.silent(t, "child", "grandchild")
	for _, who := range []string{"child", "grandchild"} {
		most = max(most, d.last(t, who).Sub(at))
	}
	return most
}

// inTime asserts that try, which returns a delay, returns none. It may be repeated, because a
// machine that stops a process for seconds proves nothing; a defect is late every time.
func inTime(t *testing.T, try func() time.Duration) {
	t.Helper()
	var all []time.Duration
	for range 4 {
		if all = append(all, try()); all[len(all)-1] <= 0 {
			return
		}
	}
	t.Fatalf("alive after another client could have the lock: %v", all)
}

func TestAFrozenServerKillsTheGroupBeforeTheLockIsFree(t *testing.T) {
	t.Parallel()
	inTime(t, func() time.Duration {
		s, d := server(t), newDiary(t)
		p := hold(t, s.Addr(), d)
		s.Inject(fault.Freeze())
		freed := free(t, s, "/l")
		p.exits(exitLost)
		require.Regexp(t, `^(zklock: nothing heard from the ensemble, the lease ends in [0-9.]+m?s: SIGTERM to the command
)?zklock: .*: SIGKILL to the command
$`, p.err)
		return d.late(t, freed)
	})
}

// The same on a real server that is stopped: its client's connections stay open, and nothing is
// answered. Only the client's own clock tells when the session is over; so the comparison is with
// the instant at which the client could be certain of it.
func TestAStoppedRealServerKillsTheGroupInTime(t *testing.T) {
	e := ensemble.Shared(t, 1)
	e.NeedControl(t)
	inTime(t, func() time.Duration {
		d := newDiary(t)
		p := hold(t, e.Connect(), d)
		stopped := time.Now()
		require.NoError(t, e.Nodes[0].Pause())
		p.exits(exitLost)
		require.NoError(t, e.Nodes[0].Resume())
		require.Contains(t, p.err.String(), "SIGKILL")
		return d.late(t, stopped.Add(lossTimeout))
	})
}

func TestTheCommandMayEndByItselfDuringTheGrace(t *testing.T) {
	t.Parallel()
	for trial := 1; ; trial++ {
		s, d := server(t), newDiary(t)
		p := launch(t, s.Addr(), append(lossFlags("--session-timeout", "12s", "--grace", "3s"),
			"/l", "--", testCommand, "diary", string(d), "until-term")...)
		d.alive(t, "child")
		// A server that accepts the connection and sends nothing would shorten the lease.
		s.Inject(fault.Refuse())
		s.Inject(fault.Freeze())
		p.exits(exitLost)
		if d.has("child", "told") {
			return
		}
		require.Less(t, trial, 4,
			"not even a busy machine lets a process wait for three seconds every time")
	}
}

func TestOnLossTermNeverSendsSIGKILL(t *testing.T) {
	t.Parallel()
	s, d := server(t), newDiary(t)
	p := hold(t, s.Addr(), d, "--on-loss", "term")
	s.Inject(fault.Freeze())
	freed := free(t, s, "/l")
	until(t, "alive still", func() bool { return d.last(t, "child").After(freed) })
	require.Contains(t, p.err.String(), "SIGTERM")
	require.NoError(t, p.Process.Signal(syscall.SIGQUIT))
	p.exits(exitLost)
	d.silent(t, "child", "grandchild")
}

func TestOnLossIgnoreReportsTheLossAndLeavesTheCommandRunning(t *testing.T) {
	t.Parallel()
	s, d := server(t), newDiary(t)
	p := launch(t, s.Addr(), append(lossFlags("--session-timeout", calm, "--on-loss", "ignore"),
		"/l", "--", testCommand, "diary", string(d), "until-term")...)
	d.alive(t, "child")
	require.NoError(t, s.Expire(s.Sessions()[0].ID))
	until(t, "said", func() bool {
		return strings.Contains(p.err.String(), "lock lost, and the command goes on: ")
	})
	require.False(t, d.has("child", "told"))
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	p.exits(7)
}

func TestAnExpiredSessionOrABrokenLockKillsTheCommandAtOnce(t *testing.T) {
	t.Parallel()
	s := server(t)
	for _, how := range []string{"expired", "deleted"} {
		d := newDiary(t)
		p := hold(t, s.Addr(), d, "--session-timeout", calm)
		if how == "expired" {
			require.NoError(t, s.Expire(s.Sessions()[0].ID))
		} else {
			require.NoError(t, s.Delete("/l/"+s.Children("/l")[0]))
		}
		p.exits(exitLost)
		// When a session is over, the deletion of its znode may be reported first.
		require.Regexp(t, "^zklock: lock lost: .*(deleted|"+how+").*: SIGKILL to the command\n$",
			p.err)
		d.silent(t, "child", "grandchild")
	}
}

// The event that tells of the znode's deletion is lost, so only the release can find it.
func TestALossThatOnlyTheReleaseFindsIsTold(t *testing.T) {
	t.Parallel()
	for name, k := range map[string]struct {
		flags []string
		code  int
		says  string
	}{
		"--on-loss kill, the default": {nil, exitLost, "^zklock: lock lost: "},
		"--on-loss term": {[]string{"--on-loss", "term"}, exitLost,
			"^zklock: lock lost: "},
		"--on-loss ignore": {[]string{"--on-loss", "ignore"}, 7,
			"^zklock: lock lost before the command had ended: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, d := server(t), newDiary(t)
			s.Inject(fault.DropReply().Op(fault.OpNotify))
			flags := append(lossFlags("--session-timeout", calm), k.flags...)
			p := launch(t, s.Addr(),
				append(flags, "/l", "--", testCommand, "diary", string(d), "until-term")...)
			d.alive(t, "child")
			loseUnnoticed(t, s)
			require.NoError(t, p.Process.Signal(syscall.SIGTERM))
			p.exits(k.code)
			require.Regexp(t, k.says, p.err)
		})
	}
	t.Run("hold", func(t *testing.T) {
		t.Parallel()
		s := server(t)
		s.Inject(fault.DropReply().Op(fault.OpNotify))
		cmd := self(t, "zklock", "hold", "--tick", tick.String(), "/l")
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		p := start(t, cmd, s.Addr())
		queued(t, s, "/l", 1)
		loseUnnoticed(t, s)
		require.NoError(t, in.Close())
		p.exits(exitLost)
		require.Regexp(t, "^zklock: lock lost: ", p.err)
	})
}

// loseUnnoticed deletes the znode of the holder of /l, once he has set his watch on it.
func loseUnnoticed(t *testing.T, s *zktest.Server) {
	t.Helper()
	node := "/l/" + s.Children("/l")[0]
	require.NoError(t,
		s.Await(locktest.Within(t, locktest.Bound), func() bool { return s.WatchCount() > 0 }))
	require.NoError(t, s.Delete(node))
}

func TestMaxHoldEndsTheCommandBeforeTheLockIsFree(t *testing.T) {
	t.Parallel()
	for most := time.Second; ; most *= 8 {
		s, d := server(t), newDiary(t)
		p := launchHold(t, s.Addr(), d, "--session-timeout", calm, "--max-hold", most.String(),
			"--grace", "500ms")
		until(t, "the command and its child, or the end",
			func() bool { return !d.seen("grandchild").IsZero() || p.over() })
		if d.seen("grandchild").IsZero() && most < time.Minute {
			continue // a busy machine had not started it by then
		}
		freed := free(t, s, "/l")
		require.LessOrEqual(t, d.late(t, freed), time.Duration(0))
		p.exits(exitLost)
		require.Regexp(t, "held for longer than --max-hold "+most.String()+
			": SIGTERM to the command\n.*: SIGKILL to the command", p.err)
		return
	}
}

// When zklock is killed, the guard kills the command's group, and closes the session.
func TestTheCommandDiesWithAKilledZklock(t *testing.T) {
	t.Parallel()
	s, d := server(t), newDiary(t)
	p := hold(t, s.Addr(), d)
	require.NoError(t, p.Process.Kill())
	p.exits(-1)
	d.silent(t, "child", "grandchild")
	require.LessOrEqual(t, d.late(t, free(t, s, "/l")), time.Duration(0))
	require.Empty(t, s.Sessions(), "closed by the guard")
}

func TestWithOnLossIgnoreTheCommandGetsSIGTERMWhenZklockIsKilled(t *testing.T) {
	t.Parallel()
	s, d := server(t), newDiary(t)
	p := launch(t, s.Addr(), append(lossFlags("--on-loss", "ignore"), "/l", "--", testCommand,
		"diary", string(d), "note", "family", "live")...)
	d.alive(t, "child", "grandchild")
	require.NoError(t, p.Process.Kill())
	for _, who := range []string{"child", "grandchild"} {
		until(t, "told", func() bool { return d.has(who, "signal 15") })
	}
	d.kill(t, "child", "grandchild")
}

// When zklock is stopped, it does not notice the end of the lease. The guard does.
func TestTheCommandOfAStoppedZklockIsKilledBeforeTheLockIsFree(t *testing.T) {
	t.Parallel()
	inTime(t, func() time.Duration {
		s, d := server(t), newDiary(t)
		p := hold(t, s.Addr(), d)
		require.NoError(t, p.Process.Signal(syscall.SIGSTOP))
		freed := free(t, s, "/l")
		late := d.late(t, freed)
		require.NoError(t, p.Process.Signal(syscall.SIGCONT))
		p.exits(exitLost)
		return late
	})
}

// The lock is lost, and then no server can be reached for longer than connecting may take.
func TestElectAgainOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	for patience := time.Second; ; patience *= 4 {
		s, d := server(t), newDiary(t)
		p := launch(t, s.Addr(), "elect", "--again", "--connect-timeout", patience.String(), "/e",
			"--", testCommand, "diary", string(d), "until-term")
		terms := func() int { return d.count("child", "ready") }
		until(t, "the first term, or the end", func() bool { return terms() == 1 || p.over() })
		if p.over() && patience < locktest.Bound {
			p.exits(exitUnreachable)
			continue // a busy machine had not let it connect by then
		}
		outage := s.Inject(fault.Refuse())
		require.NoError(t, s.Delete("/e/"+s.Children("/e")[0]))
		until(t, "connecting fails",
			func() bool { return strings.Contains(p.err.String(), "; trying again\n") })
		outage.Remove()
		until(t, "the second term", func() bool { return terms() == 2 })
		require.NoError(t, p.Process.Signal(syscall.SIGTERM))
		p.exits(7)
		return
	}
}

// A process of the command that can't be killed, such as one of sudo, may still be at work.
func TestElectAgainStartsNoCommandBesideOneThatCanNotBeKilled(t *testing.T) {
	t.Parallel()
	lost := &exitError{exitLost, nil}
	require.True(t, (&job{}).goesOn(lost, 1))
	require.False(t, (&job{stuck: true}).goesOn(lost, 1))
}

// A service that was told to leave, and whose leadership is lost before it has, is not started
// again.
func TestElectAgainDoesNotOutliveSIGTERM(t *testing.T) {
	t.Parallel()
	s, d := server(t), newDiary(t)
	p := launch(t, s.Addr(), "elect", "--again", "--session-timeout", calm, "/e", "--", testCommand,
		"diary", string(d), "note", "live")
	d.alive(t, "child")
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	until(t, "told", func() bool { return d.has("child", "signal 15") })
	require.NoError(t, s.Delete("/e/"+s.Children("/e")[0]))
	p.exits(exitLost)
	d.silent(t, "child")
}

// Standard error is a full pipe that nobody reads. Neither the command's signal nor the release
// wait for it.
func TestAMessageThatNobodyReadsDelaysNothing(t *testing.T) {
	t.Parallel()
	s, d := server(t), newDiary(t)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	defer w.Close()
	require.NoError(t, w.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
	_, err = w.Write(make([]byte, 1<<20))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "full")

	cmd := self(t, "zklock", "run", "--verbose", "--session-timeout", calm, "--max-hold", "1s",
		"/l", "--", testCommand, "diary", string(d), "until-term")
	cmd.Stderr = w
	p := start(t, cmd, s.Addr())
	p.exits(exitLost)
	require.Zero(t, inLine(s, "/l"))
	require.True(t, d.has("child", "told") || d.seen("child").IsZero(),
		"a busy machine may not have started it by then")
}
