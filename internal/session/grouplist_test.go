package session_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/zktest/fault"
)

func TestOneRefusedListCostsTheOthersNothing(t *testing.T) {
	withLocks(t, 4, func(t *testing.T, l *lockers) {
		unread := []zk.ACL{{Perms: zk.PermCreate | zk.PermDelete, Scheme: "world", ID: "anyone"}}
		_, err := l.Create(t.Context(), "/unread", nil, session.Persistent, unread)
		require.NoError(t, err)
		where := []string{dir(0), "/unread", dir(2), dir(3)}
		for i, e := range l.enterAll(t.Context(), where...) {
			if i == 1 {
				require.NoError(t, e.err)
				require.ErrorIs(t, e.listErr, zk.ErrNoAuth)
				require.ErrorContains(t, e.listErr, "/unread")
				continue
			}
			l.requireEntered(e, where[i])
		}
		require.Equal(t, 1, l.at(fault.OpMultiRead))
		require.Zero(t, l.at(fault.OpGetChildren2))
	})
}

func TestAServerInTroubleSaysSoToEachList(t *testing.T) {
	withLocks(t, 3, func(t *testing.T, l *lockers) {
		l.srv.Inject(fault.Answer(fault.CodeMarshallingError).Op(fault.OpMultiRead).Once())
		for i, e := range l.enterAll(t.Context(), dirs(3)...) {
			require.NoError(t, e.err, i)
			require.Error(t, e.listErr)
			require.NotErrorIs(t, e.listErr, session.ErrGarbled)
		}
		for i, e := range l.enterAll(t.Context(), dirs(3)...) {
			l.requireEntered(e, dir(i))
		}
		require.Equal(t, 2, l.at(fault.OpMultiRead))
	})
}

func TestAReplyToListsThatCanNotBeReadCostsEachOneMoreTry(t *testing.T) {
	const headers = 16 // of a reply
	for name, garble := range map[string]func(b []byte) []byte{
		"one result too few": func(b []byte) []byte {
			return slices.Concat(b[:len(b)-9-9-4-4-len("n-0000000000")], b[len(b)-9:])
		},
		"one result too many": func(b []byte) []byte {
			return slices.Concat(b[:len(b)-9], b[len(b)-9-9-4-4-len("n-0000000000"):])
		},
		"no end":            func(b []byte) []byte { return b[:len(b)-9] },
		"nothing":           func(b []byte) []byte { return b[:headers] },
		"an unknown result": func(b []byte) []byte { b[headers+3] = 77; return b },
		"another request's": func(b []byte) []byte {
			binary.BigEndian.PutUint32(b, 1<<20)
			return b
		},
	} {
		t.Run(name, func(t *testing.T) {
			withLocks(t, 3, func(t *testing.T, l *lockers) {
				l.srv.Inject(fault.Garble(garble).Op(fault.OpMultiRead).Once())
				for i, e := range l.enterAll(t.Context(), dirs(3)...) {
					l.requireEntered(e, dir(i))
				}
				require.Equal(t, 3, l.at(fault.OpGetChildren2), "each by itself")
			})
		})
	}
}

func TestAReplyToListsThatIsTooLongCostsEachOneMoreTry(t *testing.T) {
	withLocks(t, 3, func(t *testing.T, l *lockers) {
		longer := func(b []byte) []byte { return append(b, make([]byte, session.MaxFrame)...) }
		l.srv.Inject(fault.Garble(longer).Op(fault.OpMultiRead).Once())
		l.srv.Inject(fault.Garble(longer).Op(fault.OpGetChildren2).Path(dir(1)))
		for range 2 {
			for i, e := range l.enterAll(t.Context(), dirs(3)...) {
				require.NoError(t, e.err)
				if i == 1 {
					require.ErrorIs(t, e.listErr, session.ErrTooLarge)
					continue
				}
				l.requireEntered(e, dir(i))
			}
		}
		require.Equal(t, 1, l.at(fault.OpMultiRead),
			"then that one, known to be long, parts the others")
		require.Equal(t, 3+3, l.at(fault.OpGetChildren2))
		require.Zero(t, l.at(fault.OpConnect), "no connection was given up")
	})
}

// One directory turns out to have a long list when it is read together with others. From now on it
// is read alone.
func TestAListThatProvedLongAmongOthersIsReadAlone(t *testing.T) {
	withLocks(t, 3, func(t *testing.T, l *lockers) {
		for i := range 20 {
			child := fmt.Sprintf("/d1/%d-%s", i, strings.Repeat("x", 1<<10))
			require.NoError(t, l.srv.Create(child, nil))
		}
		for i, e := range l.enterAll(t.Context(), dirs(3)...) {
			l.requireEntered(e, dir(i))
		}
		require.Equal(t, 1, l.at(fault.OpMultiRead))
		require.Zero(t, l.at(fault.OpGetChildren2))

		for i, e := range l.enterAll(t.Context(), dirs(3)...) {
			l.requireEntered(e, dir(i))
		}
		require.Equal(t, 1, l.at(fault.OpMultiRead), "the long one parts the others")
		require.Equal(t, 3, l.at(fault.OpGetChildren2))
	})
}

func TestWhoGivesUpWhileListsAreReadTogetherLeavesTheOthersTheirs(t *testing.T) {
	withLocks(t, 3, func(t *testing.T, l *lockers) {
		held := l.srv.Inject(fault.Hold().Op(fault.OpMultiRead).Once())
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		all := make([]entered, 3)
		wait := l.together(
			func() { all[0] = l.enter(t.Context(), dir(0)) },
			func() { all[1] = l.enter(ctx, dir(1)) },
			func() { all[2] = l.enter(t.Context(), dir(2)) })
		require.NoError(t, held.Wait(t.Context(), 1))
		cancel()
		synctest.Wait()
		held.Release()
		wait()
		require.ErrorIs(t, all[1].listErr, ctx.Err())
		l.requireEntered(all[0], dir(0))
		l.requireEntered(all[2], dir(2))
	})
}
