//go:build linux || darwin

package sessionfile_test

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zklock/internal/sessionfile"
)

var servers = []string{"zk1:2181", "zk2:2181"}

func open(t *testing.T, path string) (*sessionfile.File, sessionfile.Left) {
	t.Helper()
	f, left, err := sessionfile.Open(t.Context(), path, servers, time.Second)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return f, left
}

// newPath returns the path of a file that does not exist, on a file system that Open accepts.
func newPath(tb testing.TB) string {
	tb.Helper()
	const tmpfs = "/dev/shm"
	if _, err := os.Stat(tmpfs); err != nil {
		return filepath.Join(tb.TempDir(), "f")
	}
	dir, err := os.MkdirTemp(tmpfs, "zklock")
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, os.RemoveAll(dir)) })
	return filepath.Join(dir, "f")
}

func key(id int64) sessionfile.Key {
	return sessionfile.Key{ID: id, Password: [16]byte{1, 2, byte(id)}}
}

func TestWhatACrashedProcessLeavesGoesToTheNextUntilItIsClosed(t *testing.T) {
	path := newPath(t)
	f, left := open(t, path)
	require.Empty(t, left)
	for id := range int64(3) {
		require.NoError(t, f.Add(key(id)))
	}
	require.NoError(t, f.Remove(1))
	require.NoError(t, f.Remove(99), "of which it knows nothing")
	require.NoError(t, f.Crash())

	f, left = open(t, path)
	require.Equal(t, sessionfile.Left{Keys: []sessionfile.Key{key(0), key(2)}, PID: os.Getpid()},
		left)
	require.NoError(t, f.Add(key(3)))
	require.NoError(t, f.Remove(0))
	require.NoError(t, f.Crash())

	f, left = open(t, path)
	require.Equal(t, []sessionfile.Key{key(2), key(3)}, left.Keys)
	require.NoError(t, f.Add(key(4)))
	require.NoError(t, f.Remove(3))
	require.NoError(t, f.Close())

	f, left = open(t, path)
	require.Equal(t, []sessionfile.Key{key(2)}, left.Keys, "not those of a process that goes on")
	require.NoError(t, f.Remove(2))
	require.NoError(t, f.Close())
	require.NoError(t, f.Add(key(5)), "has no effect")

	_, left = open(t, path)
	require.Empty(t, left)
}

// The servers are the same ensemble in any order.
func TestTheOrderOfTheServersDoesNotMatter(t *testing.T) {
	path := newPath(t)
	f, _ := open(t, path)
	require.NoError(t, f.Add(key(1)))
	require.NoError(t, f.Crash())
	turned := slices.Clone(servers)
	slices.Reverse(turned)
	f, left, err := sessionfile.Open(t.Context(), path, turned, 0)
	require.NoError(t, err)
	require.Len(t, left.Keys, 1)
	require.NoError(t, f.Close())
}

func TestARecordOfAnotherBootIsNotUsed(t *testing.T) {
	path := newPath(t)
	f, _ := open(t, path)
	require.NoError(t, f.Add(key(1)))
	require.NoError(t, f.WriteAsOfBoot("another"))
	require.NoError(t, f.Crash())
	_, left := open(t, path)
	require.Empty(t, left.Keys)
	require.ErrorContains(t, left.Why, "before the system started")
}

// The keys that a file has room for are the latest.
func TestAFullRecord(t *testing.T) {
	path := newPath(t)
	f, _ := open(t, path)
	longest := sessionfile.Key{ID: math.MinInt64}
	for i := range longest.Password {
		longest.Password[i] = 255
	}
	for range sessionfile.MaxKeys {
		require.NoError(t, f.Add(longest))
	}
	require.NoError(t, f.Add(key(7)))
	require.NoError(t, f.Crash())
	_, left := open(t, path)
	require.Len(t, left.Keys, sessionfile.MaxKeys)
	require.Equal(t, key(7), left.Keys[sessionfile.MaxKeys-1])
}

// Remove does not change what the caller of Open goes through.
func TestRemovingAKeyLeavesTheOthersToTheCaller(t *testing.T) {
	path := newPath(t)
	f, _ := open(t, path)
	for id := range int64(3) {
		require.NoError(t, f.Add(key(id)))
	}
	require.NoError(t, f.Crash())
	f, left := open(t, path)
	for i, k := range left.Keys {
		require.Equal(t, key(int64(i)), k)
		require.NoError(t, f.Remove(k.ID))
	}
}

// A file that can't be written any more stays locked, since it still names our sessions.
func TestAFileThatCanNotBeWrittenStaysLocked(t *testing.T) {
	path := newPath(t)
	f, _, err := sessionfile.Open(t.Context(), path, servers, 0)
	require.NoError(t, err)
	require.NoError(t, f.Add(key(1)))
	mend, err := f.MakeReadOnly()
	require.NoError(t, err)
	require.ErrorIs(t, f.Add(key(2)), sessionfile.ErrRefused)
	require.ErrorIs(t, f.Close(), sessionfile.ErrRefused)
	_, _, err = sessionfile.Open(t.Context(), path, servers, 0)
	require.ErrorContains(t, err, "another Client of this process has it")
	require.NoError(t, mend())
}

func FuzzParse(f *testing.F) {
	path := newPath(f)
	file, _, err := sessionfile.Open(f.Context(), path, servers, 0)
	require.NoError(f, err)
	require.NoError(f, file.Add(key(1)))
	good, err := os.ReadFile(path)
	require.NoError(f, err)
	require.NoError(f, file.Close())
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Add([]byte("zklock session file"))
	f.Fuzz(func(t *testing.T, contents []byte) {
		keys, err := sessionfile.Parse(contents)
		if err != nil {
			require.Empty(t, keys)
		}
	})
}
