package session_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/zktest/fault"
)

func TestWritesOfDifferentCallsThatWaitToBeWrittenLeaveAsOneTransaction(t *testing.T) {
	withLocks(t, 10, func(t *testing.T, l *lockers) {
		all := l.enterAll(t.Context(), dirs(10)...)
		for i, e := range all {
			l.requireEntered(e, dir(i))
			require.Equal(t, all[0].Czxid, e.Czxid)
		}
		require.Equal(t, 1, l.at(fault.OpMulti))
		require.Zero(t, l.at(fault.OpCreate))
		require.Equal(t, 1, l.at(fault.OpMultiRead), "each directory was listed, all at once")
		require.Zero(t, l.at(fault.OpGetChildren2))
		used := l.EphemeralBytes()
		require.Positive(t, used)

		var calls []func()
		for _, e := range all {
			calls = append(calls, func() { require.NoError(t, l.leave(t.Context(), e.Path)) })
		}
		l.together(calls...)()
		require.Equal(t, 2, l.at(fault.OpMulti))
		require.Zero(t, l.at(fault.OpDelete))
		require.Zero(t, l.EphemeralBytes())
	})
}

func TestTheProgramsOwnWritesAreInNoGroup(t *testing.T) {
	withLocks(t, 4, func(t *testing.T, l *lockers) {
		own := func(i int) func() {
			return func() {
				_, names, err := createAndList(t.Context(), l, dir(i)+"/own", nil,
					session.Ephemeral, everybody)
				require.NoError(t, err)
				require.Contains(t, names, "own")
			}
		}
		var e [2]entered
		l.together(own(0), func() { e[0] = l.enter(t.Context(), dir(1)) }, own(2), func() {
			e[1] = l.enter(t.Context(), dir(3))
		})()
		l.requireEntered(e[0], dir(1))
		l.requireEntered(e[1], dir(3))
		require.Equal(t, 1, l.at(fault.OpMulti), "that of the locks")
		require.Equal(t, 2, l.at(fault.OpCreate), "the program's")
	})
}

func TestARefusedMemberOfAGroupCostsTheOthersOneMoreTry(t *testing.T) {
	for _, bad := range []int{0, 3, 7} {
		t.Run(fmt.Sprint(bad), func(t *testing.T) {
			withLocks(t, 8, func(t *testing.T, l *lockers) {
				where := dirs(8)
				where[bad] = "/none"
				all := l.enterAll(t.Context(), where...)
				for i, e := range all {
					if i == bad {
						require.ErrorIs(t, e.err, zk.ErrNoNode)
						require.NotErrorIs(t, e.err, session.ErrUnknownOutcome)
						require.ErrorContains(t, e.err, "/none/n-")
						require.ErrorIs(t, e.listErr, zk.ErrNoNode)
						continue
					}
					l.requireEntered(e, dir(i))
				}
				// After the refusal most creates are sent again in one transaction; one whose list
				// was answered late is sent later.
				require.LessOrEqual(t, l.at(fault.OpMulti)+l.at(fault.OpCreate), 1+7)
				require.GreaterOrEqual(t, l.at(fault.OpMulti)+l.at(fault.OpCreate), 1+1)
			})
		})
	}
}

// Eight locks are used for the first time. One refusal is enough for all of them: the lists behind
// the creates say that the other directories are missing too.
func TestLocksWhoseDirectoriesAreMissingAreRefusedByOneGroup(t *testing.T) {
	withLocks(t, 0, func(t *testing.T, l *lockers) {
		for _, e := range l.enterAll(t.Context(), dirs(8)...) {
			require.ErrorIs(t, e.err, zk.ErrNoNode)
			require.NotErrorIs(t, e.err, session.ErrUnknownOutcome)
			require.ErrorIs(t, e.listErr, zk.ErrNoNode)
		}
		require.Equal(t, 1, l.at(fault.OpMulti))
		require.Zero(t, l.at(fault.OpCreate), "none was tried a second time")
	})
}

func TestWritesThatDependOnEachOtherAreInNoGroup(t *testing.T) {
	withLocks(t, 2, func(t *testing.T, l *lockers) {
		child, err := l.Create(t.Context(), "/d0/x", nil, session.Ephemeral, everybody)
		require.NoError(t, err)
		l.base = l.srv.Requests()
		var twice [2]error
		l.together(
			func() { twice[0] = l.leave(t.Context(), child.Path) },
			func() { twice[1] = l.leave(t.Context(), child.Path) },
			func() {
				require.NoError(t, l.leave(t.Context(), "/d0"), "behind the deletion of its child")
			},
			func() {
				b := l.Grouped()
				b.Create("/d0", nil, session.Persistent, everybody)
				require.NoError(t, b.Do(t.Context()), "behind the deletion")
			},
			func() { l.requireEntered(l.enter(t.Context(), "/d0"), "/d0") },
		)()
		require.NoError(t, twice[0])
		require.ErrorIs(t, twice[1], zk.ErrNoNode)
		require.Zero(t, l.at(fault.OpMulti))
	})
}

func TestATransactionOfACallStaysWholeInAGroup(t *testing.T) {
	withLocks(t, 6, func(t *testing.T, l *lockers) {
		several := func(dirs ...string) (tx session.Transaction, names []string, err error) {
			b := l.Grouped()
			var ops []session.Op
			for _, d := range dirs {
				ops = append(ops,
					session.OpCreate{Path: d + "/m-", ACL: everybody,
						Mode: session.EphemeralSequential})
			}
			made, list := b.Multi(ops...), b.List(dirs[0])
			err = b.Do(t.Context())
			return made.Value, list.Value.Names, err
		}
		var e [2]entered
		l.together(
			func() { e[0] = l.enter(t.Context(), dir(0)) },
			func() {
				tx, names, err := several(dir(1), dir(2), dir(3))
				require.NoError(t, err)
				require.Len(t, tx.Responses, 3)
				require.Len(t, names, 1)
				for i, r := range tx.Responses {
					require.Contains(t, l.srv.Children(dir(1+i)), r.String[len("/d0/"):])
					stat, err := l.Exists(t.Context(), r.String)
					require.NoError(t, err)
					require.Equal(t, tx.Zxid, stat.Czxid)
				}
			},
			func() {
				tx, _, err := several(dir(4), "/none", dir(5))
				require.ErrorIs(t, err, zk.ErrNoNode)
				require.ErrorContains(t, err, "/none/m-")
				require.Len(t, tx.Responses, 3)
				require.NoError(t, tx.Responses[0].Error)
				require.ErrorIs(t, tx.Responses[1].Error, zk.ErrNoNode)
				require.Error(t, tx.Responses[2].Error)
			},
			func() { e[1] = l.enter(t.Context(), dir(5)) },
		)()
		l.requireEntered(e[0], dir(0))
		l.requireEntered(e[1], dir(5))
		require.Empty(t, l.srv.Children(dir(4)))
		require.Len(t, l.srv.Children(dir(5)), 1)
		require.Contains(t, []int{1, 2}, l.at(fault.OpCreate),
			"of whom a member would have met in its directory, and perhaps of whose list was answered late")
	})
}

func TestAGroupIsBounded(t *testing.T) {
	withLocks(t, 250, func(t *testing.T, l *lockers) {
		all := l.enterAll(t.Context(), dirs(250)...)
		sizes := map[int64]int{}
		for i, e := range all {
			l.requireEntered(e, dir(i))
			sizes[e.Czxid]++
		}
		for zxid, n := range sizes {
			require.LessOrEqual(t, n, 100, "zxid %d", zxid)
		}
		require.Equal(t, 3, l.at(fault.OpMulti))
	})
}

func TestTheResultsOfAGroupAreThoseOfItsMembersWhateverTheyDo(t *testing.T) {
	withLocks(t, 4, func(t *testing.T, l *lockers) {
		old := l.enter(t.Context(), dir(0))
		two := []entered{l.enter(t.Context(), dir(1)), l.enter(t.Context(), dir(2))}
		var e entered
		var box session.Created
		l.together(
			func() { require.NoError(t, l.leave(t.Context(), old.Path)) },
			func() {
				b := l.Grouped()
				// it is answered with a Stat
				made := b.Create("/box", nil, session.Container, everybody)
				require.NoError(t, b.Do(t.Context()))
				box = made.Value
			},
			func() { require.NoError(t, l.leave(t.Context(), two[0].Path, two[1].Path)) },
			func() { e = l.enter(t.Context(), dir(3)) },
			func() { require.ErrorIs(t, l.leave(t.Context(), "/d1/none"), zk.ErrNoNode) },
		)()
		require.Equal(t, "/box", box.Path)
		l.requireEntered(e, dir(3))
		for _, p := range []string{old.Path, two[0].Path, two[1].Path} {
			_, ok := l.srv.Node(p)
			require.False(t, ok, p)
		}
		// One was refused. The others are sent again by their calls: together, if these wake at one
		// moment.
		require.Positive(t, l.at(fault.OpMulti))
		require.LessOrEqual(t, l.at(fault.OpMulti), 1+4)
	})
}

// A server refuses a multi that makes an ephemeral znode as a whole on a local session, for
// example.
func TestAGroupThatIsRefusedAsAWholeCostsEachMemberItsOwnRequest(t *testing.T) {
	withLocks(t, 4, func(t *testing.T, l *lockers) {
		l.srv.Inject(fault.Answer(fault.CodeNoAuth).Op(fault.OpMulti))
		for i, e := range l.enterAll(t.Context(), dirs(4)...) {
			l.requireEntered(e, dir(i))
		}
		require.NotZero(t, l.at(fault.OpMulti))
	})
}

func TestAServerInTroubleSaysSoToEachMember(t *testing.T) {
	for _, inside := range []bool{false, true} {
		withLocks(t, 3, func(t *testing.T, l *lockers) {
			answer := fault.Answer
			if inside {
				answer = fault.AnswerInside
			}
			l.srv.Inject(answer(fault.CodeMarshallingError).Op(fault.OpMulti).Once())
			for _, e := range l.enterAll(t.Context(), dirs(3)...) {
				require.ErrorContains(t, e.err, "can't read the request")
			}
			l.srv.Inject(answer(fault.CodeMarshallingError).Op(fault.OpMulti).Once())
			require.ErrorContains(t, l.leave(t.Context(), "/d0/x", "/d1/x"),
				"can't read the request", "and to who is alone")
		})
	}
}

func TestAGroupThatHearsThatTheSessionIsOverEndsIt(t *testing.T) {
	withLocks(t, 3, func(t *testing.T, l *lockers) {
		l.srv.Inject(fault.AnswerInside(fault.CodeSessionExpired).Op(fault.OpMulti).Once())
		for _, e := range l.enterAll(t.Context(), dirs(3)...) {
			require.ErrorIs(t, e.err, session.ErrExpired)
		}
		require.ErrorIs(t, l.Err(), session.ErrExpired)
	})
}

func TestAReplyToAGroupThatCanNotBeReadGivesUpTheConnection(t *testing.T) {
	const headers = 16 // of a reply
	for name, garble := range map[string]func(b []byte) []byte{
		"one result too few": func(b []byte) []byte {
			return slices.Concat(b[:len(b)-9-9-4-len("/d2/n-0000000000")], b[len(b)-9:])
		},
		"no end":            func(b []byte) []byte { return b[:len(b)-9] },
		"nothing":           func(b []byte) []byte { return b[:headers] },
		"an unknown result": func(b []byte) []byte { b[headers+3] = 77; return b },
	} {
		t.Run(name, func(t *testing.T) {
			withLocks(t, 3, func(t *testing.T, l *lockers) {
				l.srv.Inject(fault.Garble(garble).Op(fault.OpMulti).Once())
				for _, e := range l.enterAll(t.Context(), dirs(3)...) {
					require.ErrorIs(t, e.err, session.ErrGarbled)
					require.ErrorIs(t, e.err, session.ErrUnknownOutcome)
				}
				l.requireEntered(l.enter(t.Context(), dir(0)), dir(0))
			})
		})
	}
}
