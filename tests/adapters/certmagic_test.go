package adapters_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zklock/lockfor"
	"github.com/zklock/locker/zktest"
)

// As in the doc comment of lockfor.Certmagic.
type files struct{ certmagic.Storage }

type storage struct {
	files
	*lockfor.CertmagicLocker
}

var (
	_ certmagic.Storage          = storage{}
	_ certmagic.TryLocker        = storage{}
	_ certmagic.LockLeaseRenewer = storage{}
)

func newStorage(t *testing.T, srv *zktest.Server) (storage, *zklock.Client) {
	t.Helper()
	c := locktest.Dial(t, srv)
	return storage{
		files{&certmagic.FileStorage{Path: t.TempDir()}},
		lockfor.Certmagic(c, "/certificates", zklock.WithContainer()),
	}, c
}

func TestCertmagicsNamesExcludeEachOther(t *testing.T) {
	srv := zktest.Run(t)
	one, _ := newStorage(t, srv)
	two, _ := newStorage(t, srv)
	for _, name := range []string{"issue_cert_*.example.org", "a/b", strings.Repeat("long", 1000)} {
		require.NoError(t, one.Lock(t.Context(), name))
		require.NoError(t, one.RenewLockLease(t.Context(), name, time.Minute))
		isLocked, err := two.TryLock(t.Context(), name)
		require.NoError(t, err)
		require.False(t, isLocked)

		brief, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		require.ErrorIs(t, two.Lock(brief, name), context.DeadlineExceeded, "contention blocks")
		cancel()
		require.NoError(t, one.Unlock(brief, name), "also when the context has ended")

		isLocked, err = two.TryLock(t.Context(), name)
		require.NoError(t, err)
		require.True(t, isLocked)
		require.NoError(t, two.Unlock(t.Context(), name))
		require.ErrorIs(t, two.Unlock(t.Context(), name), lockfor.ErrNotLocked)
		require.ErrorIs(t, two.RenewLockLease(t.Context(), name, time.Minute), lockfor.ErrNotLocked)
	}
}

// Scenario 97: a lock was lost, and another call of the process has it. The first one's Unlock does
// not release it.
func TestScenario97_ALateUnlockDoesNotReleaseTheSuccessorsLock(t *testing.T) {
	srv := zktest.Run(t)
	s, c := newStorage(t, srv)
	require.NoError(t, s.Lock(t.Context(), "n"))
	require.NoError(t, srv.Expire(srv.Sessions()[0].ID))
	require.Eventually(t, func() bool {
		return s.RenewLockLease(t.Context(), "n", time.Minute) != nil
	}, time.Minute, 10*time.Millisecond)
	require.ErrorIs(t, s.RenewLockLease(t.Context(), "n", time.Minute), zklock.ErrLost)

	require.NoError(t, s.Lock(t.Context(), "n"))
	require.ErrorIs(t, s.RenewLockLease(t.Context(), "n", time.Minute), zklock.ErrLost,
		"the first one, which still works, must hear of it")
	require.ErrorIs(t, s.Unlock(t.Context(), "n"), zklock.ErrLost, "the first one's")
	require.NoError(t, s.RenewLockLease(t.Context(), "n", time.Minute))
	require.Len(t, locktest.Children(t, c, zklock.KeyPath("/certificates", "n")), 1)
	require.NoError(t, s.Unlock(t.Context(), "n"))
}
