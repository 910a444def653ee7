package session_test

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// Every code of ZooKeeper's KeeperException, as the first answer to a read and to a write.
func TestWhatFollowsFromEachCodeOfAServer(t *testing.T) {
	final := []fault.Code{-1, -2, -3, -5, -6, -8, -12, -13, -14, -100, -101, -102, -103, -108, -110, -111, -113, -114, -115, -119, -120,
		-121, -123, -125}
	again := []fault.Code{-4, -7, -122, -127}
	connectsAgain := []fault.Code{-118} // the session has moved, and the request was not carried out
	over := []fault.Code{-112, -124}
	for _, code := range slices.Concat(final, again, connectsAgain, over) {
		bubble(t, func(t *testing.T, srv *zktest.Server) {
			require.NoError(t, srv.Create("/x", nil))
			s := open(t, srv)
			ask := func(op fault.Op, do func() error) error {
				in := srv.Inject(fault.Answer(code).Op(op).Once())
				began := time.Now()
				err := do()
				require.EqualValues(t, 1, in.Hits())
				if slices.Contains(again, code) {
					require.GreaterOrEqual(t, time.Since(began), 50*time.Millisecond, "a pause")
				}
				return err
			}
			err := ask(fault.OpExists, func() error { _, err := s.Exists(t.Context(), "/x"); return err })
			switch {
			case slices.Contains(over, code):
				require.ErrorIs(t, s.Err(), session.ErrLost)
				require.ErrorIs(t, err, s.Err())
				return
			case slices.Contains(final, code):
				require.Error(t, err)
			default:
				require.NoError(t, err, code)
			}
			err = ask(fault.OpSetData, func() error { _, err := s.Set(t.Context(), "/x", nil, -1); return err })
			switch {
			case code == -127, code == -118: // certainly not carried out
				require.NoError(t, err)
			case slices.Contains(final, code):
				require.Error(t, err)
				require.NotErrorIs(t, err, session.ErrUnknownOutcome, code)
			default:
				require.ErrorIs(t, err, session.ErrUnknownOutcome, code)
			}
			require.NoError(t, s.Err())
			_, err = s.Exists(t.Context(), "/none")
			require.ErrorIs(t, err, zk.ErrNoNode)
		}, zktest.WithVersion(zktest.Version39))
	}
}

// A group is carried out and answered by a code that proves nothing: it is not carried out a second time.
func TestAGroupWhoseAnswerProvesNothingHasAnUnknownOutcome(t *testing.T) {
	for _, code := range []int32{-4, -7, -122} {
		bubble(t, func(t *testing.T, srv *zktest.Server) {
			require.NoError(t, srv.Create("/a", nil))
			require.NoError(t, srv.Create("/b", nil))
			s := open(t, srv)
			srv.Inject(fault.Garble(func(reply []byte) []byte {
				return binary.BigEndian.AppendUint32(slices.Clone(reply[:12]), uint32(code))
			}).Op(fault.OpMulti).Once())
			b := s.Grouped()
			b.Create("/a/x-", nil, session.EphemeralSequential, session.WorldACL())
			b.Create("/b/x-", nil, session.EphemeralSequential, session.WorldACL())
			require.ErrorIs(t, b.Do(t.Context()), session.ErrUnknownOutcome)
			require.Len(t, srv.Children("/a"), 1)
		})
	}
}
