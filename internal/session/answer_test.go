package session_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// Scenario 81: a reply comes as the session ends: for another cause, or because the reply says so.
// Whichever the call sees first, the reply decides.
func TestAnAnswerThatHasComeDecidesAlthoughTheSessionEnds(t *testing.T) {
	for name, c := range map[string]struct {
		code int32
		want error
	}{
		"done": {0, nil}, "refused": {-101, zk.ErrNoNode},
		"the session has expired": {-112, session.ErrExpired},
	} {
		for order, readerFirst := range map[string]bool{"the call wakes first": false,
			"the reader is first": true} {
			t.Run(name+", "+order, func(t *testing.T) {
				r := session.NewRig()
				defer r.Stop()
				gate, got := make(chan struct{}), make(chan error, 1)
				if !readerFirst {
					close(gate)
				}
				go func() {
					got <- r.Delete(locktest.LateContext{Context: within(t, soon),
						Gate: gate}, "/x", -1)
				}()
				<-r.Written()
				r.OnEnd(func() {
					r.AwaitAbandoned(func() bool { return readerFirst || len(got) > 0 })
				})
				if c.want != session.ErrExpired { // otherwise the reply itself ends the session
					r.BeforeReply = func() { r.End(session.ErrExpired) }
				}
				_ = r.Answer(c.code, nil) // fails if the session has expired
				if readerFirst {
					close(gate)
				}
				err := <-got
				if c.want == nil {
					require.NoError(t, err)
					return
				}
				require.ErrorIs(t, err, c.want)
				require.NotErrorIs(t, err, session.ErrUnknownOutcome)
			})
		}
	}
}

// A watch has been set, and the session has ended, before the call looks for either.
func TestAWatchThatWasSetIsReturnedAlthoughTheSessionHasEnded(t *testing.T) {
	for range 20 { // which of the two a select takes is random
		r := session.NewRig()
		gate, got := make(chan struct{}), make(chan error, 1)
		go func() {
			_, err := r.Watch(locktest.LateContext{Context: within(t, soon), Gate: gate}, "/p")
			got <- err
		}()
		<-r.Written()
		require.NoError(t, r.Answer(-101, nil))
		r.End(session.ErrExpired)
		close(gate)
		require.NoError(t, <-got)
		r.Stop()
	}
}

// The reply to a create is lost, and the session ends at each moment at which the call looks
// whether to go on.
func TestAPathWhoseReplyIsLostAsTheSessionEndsTellsOfBoth(t *testing.T) {
	for at, reached := int32(1), true; reached; at++ {
		bubble(t, func(t *testing.T, srv *zktest.Server) {
			s := open(t, srv)
			ctx := locktest.EndAt(within(t, soon), at, func() {
				require.NoError(t, srv.Expire(s.ID()))
				<-s.Done()
			})
			lost := srv.Inject(fault.CloseBefore().Op(fault.OpCreate).Once())
			err := s.CreateAll(ctx, "/x", nil, session.Persistent, session.WorldACL())
			if reached = ctx.Reached(); !reached {
				require.NoError(t, err)
				require.Equal(t, 1, lost.Hits())
				return
			}
			require.ErrorIs(t, err, session.ErrExpired, "%d", at)
			require.Equal(t, lost.Hits() > 0, errors.Is(err, session.ErrUnknownOutcome), "%d: %v",
				at, err)
		})
	}
}

// A call waits for a connection until the lease has expired: its error says that, and what the
// servers had answered.
func TestACallThatWaitsForAConnectionUntilTheSessionEndsSaysWhatItWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		srv.Leader().Down()
		_, err := s.Exists(context.Background(), "/x")
		require.ErrorIs(t, err, session.ErrLeaseExpired)
		require.ErrorIs(t, err, session.ErrNotSent)
		require.ErrorContains(t, err, "waiting for a connection: no server reachable: ")
		_, err = s.Exists(context.Background(), "/x")
		require.EqualError(t, err, "session: exists /x: "+s.Err().Error(),
			"it has waited for nothing")
		srv.Leader().Up()
		srv.Inject(fault.Answer(fault.CodeAuthFailed).Op(fault.OpAuth))
		_, err = session.Open(within(t, soon), srv.Addr(),
			session.Config{Dial: srv.Dial, Auth: []session.Auth{{Scheme: "x"}}})
		require.ErrorIs(t, err, session.ErrAuth)
		require.NotContains(t, err.Error(), "has answered yet")
	})
}

// Every code of ZooKeeper's KeeperException, as the first answer to a read and to a write.
func TestWhatFollowsFromEachCodeOfAServer(t *testing.T) {
	trouble := []fault.Code{-1, -2, -3, -5, -12, -13, -14}
	final := []fault.Code{-6, -8, -100, -101, -102, -103, -108, -110, -111, -113, -114, -115, -119,
		-120, -121, -123, -125}
	again := []fault.Code{-4, -7, -122, -127}
	// the session has moved, and the request was not carried out
	connectsAgain := []fault.Code{-118}
	over := []fault.Code{-112, -124}
	for _, code := range slices.Concat(trouble, final, again, connectsAgain, over) {
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
			err := ask(fault.OpExists, func() error {
				_, err := s.Exists(t.Context(), "/x")
				return err
			})
			switch {
			case slices.Contains(over, code):
				require.ErrorIs(t, s.Err(), session.ErrLost)
				require.ErrorIs(t, err, s.Err())
				return
			case slices.Contains(trouble, code), slices.Contains(final, code):
				require.Error(t, err)
			default:
				require.NoError(t, err, code)
			}
			err = ask(fault.OpSetData, func() error {
				_, err := s.Set(t.Context(), "/x", nil, -1)
				return err
			})
			switch {
			case code == -127, code == -118: // certainly not carried out
				require.NoError(t, err)
			case slices.Contains(final, code):
				require.Error(t, err)
				require.NotErrorIs(t, err, session.ErrUnknownOutcome, code)
			default:
				require.ErrorIs(t, err, session.ErrUnknownOutcome, code)
				require.Equal(t, slices.Contains(again, code), errors.Is(err, session.ErrNoReply),
					code)
			}
			require.NoError(t, s.Err())
			_, err = s.Exists(t.Context(), "/none")
			require.ErrorIs(t, err, zk.ErrNoNode)
		}, zktest.WithVersion(zktest.Version39))
	}
}

// A group is carried out and answered by a code that proves nothing: it is not carried out a second
// time.
func TestAGroupWhoseAnswerProvesNothingHasAnUnknownOutcome(t *testing.T) {
	for _, code := range []int32{-1, -4, -7, -122} {
		bubble(t, func(t *testing.T, srv *zktest.Server) {
			require.NoError(t, srv.Create("/a", nil))
			require.NoError(t, srv.Create("/b", nil))
			s := open(t, srv)
			srv.Inject(fault.Garble(func(reply []byte) []byte {
				return binary.BigEndian.AppendUint32(slices.Clone(reply[:12]), uint32(code))
			}).Op(fault.OpMulti).Once())
			b := s.Grouped()
			a := b.Create("/a/x-", nil, session.EphemeralSequential, session.WorldACL())
			c := b.Create("/b/x-", nil, session.EphemeralSequential, session.WorldACL())
			require.ErrorIs(t, b.Do(t.Context()), session.ErrUnknownOutcome)
			require.ErrorIs(t, a.Err, session.ErrUnknownOutcome)
			require.ErrorIs(t, c.Err, session.ErrUnknownOutcome)
			require.Len(t, srv.Children("/a"), 1)
		})
	}
}

// The header of the reply says OK, and the result of the only operation is a code that proves
// nothing. The server has carried the transaction out, or it has not: the caller is told that both
// are possible.
func TestATransactionWhoseResultProvesNothingHasAnUnknownOutcome(t *testing.T) {
	for _, code := range []int32{-1, -3, -5, -13} {
		for name, c := range map[string]struct {
			answer fault.Fault
			done   bool
		}{
			"carried out":     {fault.Garble(resultOf(code)), true},
			"not carried out": {fault.AnswerInside(fault.Code(code)), false},
		} {
			t.Run(fmt.Sprintf("%d, %s", code, name), func(t *testing.T) {
				bubble(t, func(t *testing.T, srv *zktest.Server) {
					s := open(t, srv)
					answered := srv.Inject(c.answer.Op(fault.OpMulti))
					_, err := s.Multi(t.Context(), session.OpCreate{Path: "/x", ACL: everybody})
					require.ErrorIs(t, err, session.ErrUnknownOutcome)
					require.NotErrorIs(t, err, session.ErrNoReply,
						"it is no reason to repeat it at once")
					require.Equal(t, 1, answered.Hits())
					_, made := srv.Node("/x")
					require.Equal(t, c.done, made)
				})
			})
		}
	}
}

// resultOf returns what makes the reply to a transaction of one operation say that it is answered
// with code, below a header that stays as it is.
func resultOf(code int32) func(reply []byte) []byte {
	return func(reply []byte) []byte {
		const header, failed, last = 16, -1, 1
		b := be32(append(be32(slices.Clone(reply[:header]), failed), 0), code)
		b = be32(b, code) // the result has its code twice
		return be32(append(be32(b, failed), last), -1)
	}
}

// Each case takes few creates. After more of them the server says that the znode is there, so that
// a call that creates without an end returns, and the test fails.
func TestAPathIsMadeWithoutMoreCreatesThanWhatHappensDemands(t *testing.T) {
	const bound = 20
	for name, c := range map[string]struct {
		chroot, path string
		answer       fault.Fault // what happens to the first creates
		times        int         // to how many of them
		creates      int
		want         error
		says         string
	}{
		"the znode is missing":    {path: "/x", creates: 1},
		"its parents are missing": {path: "/a/b/c", creates: 5},
		"the chroot is missing":   {chroot: "/c", path: "/x", creates: 1, want: session.ErrConfig},
		"the root is missing": {path: "/x", answer: fault.Answer(fault.CodeNoNode), times: bound,
			creates: 1, want: zk.ErrNoNode, says: "the root is missing"},
		"the reply is lost":  {path: "/x", answer: fault.CloseAfter(), times: 1, creates: 2},
		"the create is lost": {path: "/x", answer: fault.CloseBefore(), times: 1, creates: 2},
		"the server is busy": {path: "/x", answer: fault.Answer(-127), times: 3, creates: 4},
		"the server is not well": {path: "/x", answer: fault.Answer(-1), times: bound,
			creates: 1, want: session.ErrUnknownOutcome},
		"the server does not permit it": {path: "/x", answer: fault.Answer(fault.CodeNoAuth),
			times: bound, creates: 1, want: zk.ErrNoAuth},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *zktest.Server) {
				s := openAt(t, srv.Addr()+c.chroot, func(conf *session.Config) {
					conf.Dial, conf.CreateChroot = srv.Dial, false
				})
				creates := srv.Inject(fault.Delay(0).Op(fault.OpCreate))
				srv.Inject(fault.Answer(fault.CodeNodeExists).Op(fault.OpCreate).After(bound))
				if c.times > 0 {
					srv.Inject(c.answer.Op(fault.OpCreate).Times(c.times))
				}
				err := s.CreateAll(within(t, soon), c.path, nil, session.Persistent, everybody)
				require.Equal(t, c.creates, creates.Hits())
				_, made := srv.Node(c.chroot + c.path)
				require.Equal(t, c.want == nil, made)
				if c.want == nil {
					require.NoError(t, err)
					return
				}
				require.ErrorIs(t, err, c.want)
				require.ErrorContains(t, err, c.says)
			})
		})
	}
}
