package session_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/zktest/fault"
)

// A server refuses a multi that makes an ephemeral znode as a whole on a local session, for example.
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
			require.ErrorContains(t, l.leave(t.Context(), "/d0/x", "/d1/x"), "can't read the request", "and to who is alone")
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
		"one result too few": func(b []byte) []byte { return slices.Concat(b[:len(b)-9-9-4-len("/d2/n-0000000000")], b[len(b)-9:]) },
		"no end":             func(b []byte) []byte { return b[:len(b)-9] },
		"nothing":            func(b []byte) []byte { return b[:headers] },
		"an unknown result":  func(b []byte) []byte { b[headers+3] = 77; return b },
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
