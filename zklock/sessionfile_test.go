//go:build linux || darwin

package zklock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/unsealed"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
)

// sessionFileTest is a lock whose holder is another process, with a session file.
type sessionFileTest struct {
	*testing.T
	site *locktest.Site
	path string // of the lock
	file string
	log  locktest.Buffer
}

func newSessionFileTest(t *testing.T) *sessionFileTest {
	t.Helper()
	s := locktest.SiteOf(t, 1)
	return &sessionFileTest{T: t, site: s, path: s.Path(t),
		file: filepath.Join(localDir(t), "session")}
}

// localDir returns a directory on a file system that session files may be on.
func localDir(t *testing.T) string {
	t.Helper()
	const tmpfs = "/dev/shm"
	if _, err := os.Stat(tmpfs); err != nil {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(tmpfs, "zklock")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

// logged reports whether a line of the successors' log has part in it.
func (t *sessionFileTest) logged(part string) bool {
	return strings.Contains(t.log.String(), part)
}

// holder starts a process that takes the lock, and plays the part.
func (t *sessionFileTest) holder(part string) *crashChild {
	t.Helper()
	child, err := crashStart(t, part, childOrders{Connect: t.site.Connect(), Path: t.path,
		Timeout: t.site.LongTimeout(), Tick: t.site.Tick, SessionFile: t.file})
	require.NoError(t, err)
	return child
}

// kill kills the holder, and returns when it has ended.
func (t *sessionFileTest) kill(holder *crashChild) {
	t.Helper()
	require.NoError(t, holder.cmd.Process.Kill())
	_, err := holder.cmd.Process.Wait()
	require.NoError(t, err)
}

// dial opens a Client with the session file at path. The session timeout bounds its wait for that.
func (t *sessionFileTest) dial(path string, timeout time.Duration) (*zklock.Client, error) {
	t.Helper()
	c, err := t.site.Dial(t, t.site.Connect(), zklock.WithSessionFile(path),
		zklock.WithSessionTimeout(timeout),
		zklock.WithLogger(slog.New(slog.NewTextHandler(&t.log, nil))))
	if err == nil {
		t.Cleanup(func() { require.NoError(t, c.Close()) })
	}
	return c, err
}

// successor opens the Client of a process that takes the place of the holder.
func (t *sessionFileTest) successor() *zklock.Client {
	t.Helper()
	c, err := t.dial(t.file, t.site.LongTimeout())
	require.NoError(t, err)
	return c
}

// takeSoon takes the lock, long before the holder's session would time out.
func (t *sessionFileTest) takeSoon(c *zklock.Client) {
	t.Helper()
	began := time.Now()
	hold := locktest.Lock(t, c.Mutex(t.path))
	require.Less(t, time.Since(began), t.site.LongTimeout()/2)
	locktest.Unlock(t, hold)
}

// freed is the line that says that a session was closed.
const freed = `has crashed are free"`

// isStillHeld checks that the lock is not free, many times, while c could have closed a session.
func (t *sessionFileTest) isStillHeld(c *zklock.Client) {
	t.Helper()
	for range 20 {
		_, _, err := c.Mutex(t.path).TryLock(t.Context())
		require.ErrorIs(t, err, zklock.ErrBusy)
	}
	require.False(t, t.logged(freed))
}

func TestScenario84_ACrashedProcessesLockIsFreeWhenItStartsAgain(t *testing.T) {
	s := newSessionFileTest(t)
	holder := s.holder(childHolds)
	s.kill(holder)
	c := s.successor()
	s.takeSoon(c)
	require.Eventually(t, func() bool { return s.logged(freed) }, locktest.Bound,
		time.Millisecond)
	require.True(t, s.logged(fmt.Sprintf("pid=%d", holder.cmd.Process.Pid)))

	info, err := os.Stat(s.file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
}

func TestScenario84_AFileThatWasWrittenForOtherServersClosesNothing(t *testing.T) {
	s := newSessionFileTest(t)
	s.kill(s.holder(childHolds))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := zklock.Dial(ctx, "127.0.0.1:1", zklock.WithSessionFile(s.file), zklock.WithLogger(
		slog.New(slog.NewTextHandler(&s.log, nil))))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.True(t, s.logged("for other servers"))
	s.isStillHeld(s.successor())
}

func TestScenario84_AFailedDialLeavesTheSessionsToTheNext(t *testing.T) {
	s := newSessionFileTest(t)
	s.kill(s.holder(childHolds))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := zklock.Dial(ctx, s.site.Connect(), zklock.WithSessionFile(s.file),
		zklock.WithoutLog())
	require.ErrorIs(t, err, context.Canceled)
	s.takeSoon(s.successor())
}

// Scenario 84: processes with session files take turns, and each is killed at a random moment, just
// after the one that takes its place was started. Never do two have a turn, and the locks of the
// killed ones cost hardly any time.
func TestScenario84_ProcessesThatAreKilledAtRandomTakeTurns(t *testing.T) {
	const places, lives = 3, 15
	s := newSessionFileTest(t)
	witness := s.file + ".witness"
	require.NoError(t, os.WriteFile(witness, nil, 0o600))
	var turns atomic.Int64
	var all sync.WaitGroup

	// live starts a process, and returns a while later, before the process is killed.
	live := func(file string) error {
		child, err := crashStart(t, childTurns, childOrders{Connect: s.site.Connect(), Path: s.path,
			Data: witness, Timeout: s.site.LongTimeout(), Tick: s.site.Tick, SessionFile: file})
		if err != nil {
			return err
		}
		all.Go(func() {
			for {
				_, err := child.Listen()
				if errors.Is(err, io.ErrUnexpectedEOF) {
					return // it was killed
				}
				if err != nil {
					t.Error(err)
					return
				}
				turns.Add(1)
			}
		})
		locktest.Pass(rand.N(200 * time.Millisecond))
		all.Go(func() {
			locktest.Pass(rand.N(300 * time.Millisecond)) // the next one wants its file
			_ = child.cmd.Process.Kill()                  // it has not been waited for
		})
		return nil
	}
	fileOf := func(place int) string { return fmt.Sprint(s.file, place) }
	began := time.Now()
	for place := range places {
		all.Go(func() {
			for range lives {
				if err := live(fileOf(place)); err != nil {
					t.Errorf("place %d: %v", place, err)
				}
			}
		})
	}
	all.Wait()
	took := time.Since(began)
	t.Logf("%d turns in %v, with %d kills", turns.Load(), took, places*lives)
	require.Positive(t, turns.Load())
	require.Less(t, took, places*lives*s.site.LongTimeout()/4)

	var last *zklock.Client
	for place := range places {
		c, err := s.dial(fileOf(place), s.site.LongTimeout())
		require.NoError(t, err)
		last = c
	}
	s.takeSoon(last)
}

// A process that is stopped lives, and so does its lock. Who wants its file is told who has it.
func TestScenario84_AStoppedProcessKeepsItsSession(t *testing.T) {
	s := newSessionFileTest(t)
	holder := s.holder(childHolds)
	holder.Signal(t, syscall.SIGSTOP)
	began := time.Now()
	patience := s.site.ShortTimeout()
	_, err := s.dial(s.file, patience)
	require.Error(t, err)
	require.NotErrorIs(t, err, zklock.ErrInvalid, "it may work the next time")
	require.ErrorContains(t, err, fmt.Sprintf("process %d", holder.cmd.Process.Pid))
	require.True(t, s.logged("waits for another process that has the session file"))
	require.GreaterOrEqual(t, time.Since(began), patience)

	_, err = zklock.Open(s.site.Connect(), zklock.WithSessionFile(s.file), zklock.WithoutLog())
	require.ErrorContains(t, err, "another process has it")

	holder.Signal(t, syscall.SIGCONT)
	s.isStillHeld(s.site.Client(t))
	s.kill(holder)
	s.takeSoon(s.successor())
}

// A child that was given the descriptor counts as the process.
func TestScenario84_AChildWithTheDescriptorKeepsTheSession(t *testing.T) {
	s := newSessionFileTest(t)
	holder := s.holder(childPasses)
	s.kill(holder)
	_, err := s.dial(s.file, s.site.ShortTimeout())
	require.ErrorContains(t, err, "another process has it")
	s.isStillHeld(s.site.Client(t))

	child, err := os.FindProcess(holder.Hello.Child)
	require.NoError(t, err)
	require.NoError(t, child.Kill())
	s.takeSoon(s.successor())
}

// A file that says anything else than what the process wrote to it closes nothing.
func TestScenario84_ACopiedOrDamagedFileClosesNothing(t *testing.T) {
	read := func(s *sessionFileTest) []byte {
		b, err := os.ReadFile(s.file)
		require.NoError(s, err)
		return b
	}
	write := func(s *sessionFileTest, path string, b []byte) {
		require.NoError(s, os.WriteFile(path, b, 0o600)) // in place
	}
	for name, c := range map[string]struct {
		change func(s *sessionFileTest) (path string) // returns which file the successor is given
		why    string
		dies   bool // the holder; otherwise it still has the file that the successor wants
	}{
		"copy": {func(s *sessionFileTest) string {
			write(s, s.file+".copy", read(s))
			return s.file + ".copy"
		}, "copy of another file", false},
		"copy in its place": {func(s *sessionFileTest) string {
			write(s, s.file+".copy", read(s))
			require.NoError(s, os.Rename(s.file+".copy", s.file))
			return s.file
		}, "copy of another file", false},
		"contents in another session file": {func(s *sessionFileTest) string {
			other, err := s.dial(s.file+".other", s.site.LongTimeout())
			require.NoError(s, err)
			require.NoError(s, other.Close())
			write(s, s.file+".other", read(s))
			return s.file + ".other"
		}, "copy of another file", false},
		"cut": {func(s *sessionFileTest) string {
			write(s, s.file, read(s)[:1000])
			return s.file
		}, "damaged", true},
		"one bit": {func(s *sessionFileTest) string {
			b := read(s)
			b[bytes.Index(b, []byte(`"id":`))+5] ^= 1
			write(s, s.file, b)
			return s.file
		}, "damaged", true},
		"another version": {func(s *sessionFileTest) string {
			write(s, s.file, bytes.Replace(read(s), []byte("version 1"), []byte("version 2"), 1))
			return s.file
		}, "another version", true},
		"removed": {func(s *sessionFileTest) string {
			require.NoError(s, os.Remove(s.file))
			return s.file
		}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSessionFileTest(t)
			holder := s.holder(childHolds)
			path := c.change(s)
			if c.dies {
				s.kill(holder)
			}
			next, err := s.dial(path, s.site.LongTimeout())
			require.NoError(t, err)
			s.isStillHeld(next)
			require.Equal(t, c.why != "", s.logged("of no use this time"))
			require.True(t, s.logged(c.why))
		})
	}
}

func TestAFileThatIsNoSessionFileIsRefusedAndNotChanged(t *testing.T) {
	s := newSessionFileTest(t)
	precious := []byte("precious\n")
	require.NoError(t, os.WriteFile(s.file, precious, 0o644))
	_, err := s.dial(s.file, time.Second)
	require.ErrorIs(t, err, zklock.ErrInvalid)
	require.ErrorContains(t, err, "not a session file")
	got, err := os.ReadFile(s.file)
	require.NoError(t, err)
	require.Equal(t, precious, got)
	info, err := os.Stat(s.file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o644), info.Mode())

	for path, rule := range map[string]string{
		t.TempDir():                           "directory",
		filepath.Join(s.file, "x"):            "not a directory",
		filepath.Join(t.TempDir(), "no", "x"): "no such file",
		"/dev/null":                           "not a regular file",
		"":                                    "is empty",
	} {
		_, err := s.dial(path, time.Second)
		require.ErrorIs(t, err, zklock.ErrInvalid, path)
		require.ErrorContains(t, err, rule, path)
	}
}

func TestTwoClientsOfAProcessCanNotShareASessionFile(t *testing.T) {
	s := newSessionFileTest(t)
	first := s.successor()
	began := time.Now()
	_, err := s.dial(s.file, s.site.LongTimeout())
	require.ErrorContains(t, err, "another Client of this process has it")
	require.Less(t, time.Since(began), s.site.LongTimeout()/2)
	require.NoError(t, first.Close())
	s.successor()
}

// The next session of a Client is in the file in place of the one that the ensemble has ended, and
// after Close there is none.
func TestTheFileNamesTheSessionsThatAreNotClosed(t *testing.T) {
	s := newSessionFileTest(t)
	c := s.successor()
	names := func(id int64) bool {
		b, err := os.ReadFile(s.file)
		require.NoError(t, err)
		return bytes.Contains(b, fmt.Appendf(nil, `"id":%d,`, id))
	}
	first, err := c.Session(t.Context())
	require.NoError(t, err)
	require.True(t, names(first.ID()))

	ses, err := unsealed.Session(t.Context(), c)
	require.NoError(t, err)
	require.NoError(t, ses.Close()) // as if it had ended by itself
	second, err := c.Session(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, first.ID(), second.ID())
	require.True(t, names(second.ID()))
	require.Eventually(t, func() bool { return !names(first.ID()) }, locktest.Bound,
		time.Millisecond)

	require.NoError(t, c.Close())
	require.False(t, names(second.ID()))
}
