package queue_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/queue"
	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// A call repeats at once what no server has answered, and nothing else. What is left to the sweeper
// pauses in between. The answer "connection loss" counts as none. The answers are bounded, so that
// a call that repeats without an end returns, and the test fails.
func TestACallIsRepeatedAtOnceOnlyWithoutAnAnswer(t *testing.T) {
	const bound = 20
	type call func(ctx context.Context, s *session.Session, q queue.Queue, t *queue.Ticket) error
	check := func(ctx context.Context, _ *session.Session, _ queue.Queue, t *queue.Ticket) error {
		return t.Check(ctx)
	}
	setData := func(ctx context.Context, _ *session.Session, _ queue.Queue, t *queue.Ticket) error {
		return t.SetData(ctx, []byte("new"))
	}
	leave := func(ctx context.Context, _ *session.Session, _ queue.Queue, t *queue.Ticket) error {
		return t.Leave(ctx)
	}
	resize := func(ctx context.Context, s *session.Session, q queue.Queue, _ *queue.Ticket) error {
		return q.Size.Resize(ctx, s, q, 3)
	}
	for what, c := range map[string]struct {
		op   fault.Op
		call call
		most int // how often it is sent in a second, if it is answered
	}{
		"a check":   {fault.OpMulti, check, 1},
		"new data":  {fault.OpSetData, setData, 1},
		"a resize":  {fault.OpSetData, resize, 1},
		"a release": {fault.OpDelete, leave, 6}, // by the call, and then by the sweeper
	} {
		for name, answer := range map[string]struct {
			code  fault.Code
			times int
			least int // how often it strikes
			want  error
		}{
			"no answer":      {fault.CodeConnectionLoss, 3, 3, nil},
			"a system error": {-1, bound, 1, session.ErrUnknownOutcome},
			"a refusal":      {fault.CodeNoAuth, bound, 1, zk.ErrNoAuth},
		} {
			t.Run(what+", "+name, func(t *testing.T) {
				bubble(t, func(t *testing.T, srv *zktest.Server) {
					s := open(t, srv)
					q := permitsOf(queue.NewSize(2), 1)
					ticket := enter(t, q, s)
					require.NoError(t, ticket.Wait(within(t, soon)))
					sent := srv.Inject(fault.Answer(answer.code).Op(c.op).Times(answer.times))
					err := c.call(within(t, soon), s, q, ticket)
					require.ErrorIs(t, err, answer.want)
					time.Sleep(time.Second)
					require.GreaterOrEqual(t, sent.Hits(), answer.least)
					require.LessOrEqual(t, sent.Hits(), max(c.most, answer.least))
				})
			})
		}
	}
}

// ends are calls of a ticket that holds, which lose their session at a moment of the test's choice.
var ends = map[string]struct {
	queues []queue.Queue
	op     fault.Op
	behind bool // it waited behind another contender, and leaves by its mark
	call   func(*queue.Ticket, context.Context) error
}{
	"a release":           {[]queue.Queue{aMutex()}, fault.OpDelete, false, (*queue.Ticket).Leave},
	"a release by a mark": {[]queue.Queue{aMutex()}, fault.OpMulti, true, (*queue.Ticket).Leave},
	"a release of several": {[]queue.Queue{mutexIn("/l"), mutexIn("/m")}, fault.OpMulti, false,
		(*queue.Ticket).Leave},
	"new data": {[]queue.Queue{aMutex()}, fault.OpSetData, false,
		func(t *queue.Ticket, ctx context.Context) error {
			return t.SetData(ctx, []byte("new"))
		}},
}

// stops are the ends that stop a call.
var stops = map[string]struct {
	says error
	stop func(t *testing.T, srv *zktest.Server, s *session.Session, cancel context.CancelFunc)
}{
	"the session": {session.ErrExpired,
		func(t *testing.T, srv *zktest.Server, s *session.Session, _ context.CancelFunc) {
			require.NoError(t, srv.Expire(s.ID()))
			<-s.Done()
		}},
	"ctx": {context.Canceled,
		func(_ *testing.T, _ *zktest.Server, _ *session.Session, cancel context.CancelFunc) {
			cancel()
		}},
}

// eachEnd stops a call of s at each moment at which it looks whether to go on, one after the other.
// do makes the call with ctx, and checks its error; one that the end has caused matches says.
func eachEnd(
	t *testing.T,
	do func(t *testing.T, srv *zktest.Server, s *session.Session, ctx *locktest.EndingContext,
		says error),
) {
	for name, end := range stops {
		t.Run(name, func(t *testing.T) {
			for at, reached := int32(1), true; reached; at++ {
				bubble(t, func(t *testing.T, srv *zktest.Server) {
					s := open(t, srv)
					ctx, cancel := context.WithCancel(within(t, soon))
					defer cancel()
					looks := locktest.EndAt(ctx, at, func() { end.stop(t, srv, s, cancel) })
					do(t, srv, s, looks, end.says)
					reached = looks.Reached()
				})
			}
		})
	}
}

// Scenario 81: what is sent meets a failure, and the session or ctx ends at each moment at which
// the call looks whether to go on. The error says so, unless a server had refused the call before:
// an answer decides.
func TestTheErrorOfACallSaysWhatHasEndedItWheneverThatEnds(t *testing.T) {
	for call, c := range ends {
		for name, failure := range map[string]fault.Fault{
			"lost and carried out": fault.CloseAfter().Once(), "lost": fault.CloseBefore().Once(),
			"refused":        fault.Answer(fault.CodeNoAuth),
			"refused inside": fault.AnswerInside(fault.CodeNoAuth),
			"gone":           fault.Answer(fault.CodeNoNode),
		} {
			t.Run(call+", "+name, func(t *testing.T) {
				eachEnd(t,
					func(
						t *testing.T, srv *zktest.Server, s *session.Session,
						ctx *locktest.EndingContext, says error,
					) {
						var ahead *queue.Ticket
						if c.behind {
							ahead = enter(t, c.queues[0], open(t, srv))
							require.NoError(t, ahead.Wait(within(t, soon)))
						}
						ticket, err := queue.Enter(within(t, soon), s, c.queues...)
						require.NoError(t, err)
						waits := wait(ticket, within(t, soon))
						if c.behind {
							pending(t, waits)
							require.NoError(t, ahead.Leave(within(t, soon)))
						}
						require.NoError(t, <-waits)
						srv.Inject(failure.Op(c.op).Session(s.ID()))
						err = c.call(ticket, ctx)
						if !ctx.Reached() || err == nil {
							return
						}
						// without the mark it would be allowed
						refused := errors.Is(err, zk.ErrNoAuth) && !c.behind
						answered := errors.Is(err, queue.ErrGone) || refused &&
							!errors.Is(err, session.ErrUnknownOutcome)
						require.NotEqual(t, answered, errors.Is(err, says), "%v", err)
					})
			})
		}
	}
}

// Another contender was in the way, as the list behind the create has shown.
func TestATryThatHasFoundTheLockBusySaysSo(t *testing.T) {
	eachEnd(t,
		func(
			t *testing.T, srv *zktest.Server, s *session.Session, ctx *locktest.EndingContext,
			says error,
		) {
			require.NoError(t, enter(t, aMutex(), open(t, srv)).Wait(within(t, soon)))
			// it is not in the first list
			srv.Inject(
				fault.Answer(fault.CodeNoNode).Op(fault.OpGetChildren2).Session(s.ID()).Once())
			_, err := queue.Try(ctx, s, aMutex())
			require.NotEqual(t, errors.Is(err, queue.ErrBusy), errors.Is(err, says), "%v", err)
			if srv.Requests()[fault.OpCreate] > 1 {
				require.ErrorIs(t, err, queue.ErrBusy)
			}
		})
}

// The reply to the write of a semaphore's size is lost, and the call ends before it has written the
// size again.
func TestAResizeThatIsStoppedSaysWhatHasStoppedIt(t *testing.T) {
	eachEnd(t,
		func(
			t *testing.T, srv *zktest.Server, s *session.Session, ctx *locktest.EndingContext,
			says error,
		) {
			size := queue.NewSize(2)
			q := permitsOf(size, 1)
			enter(t, q, open(t, srv))
			lost := srv.Inject(fault.CloseBefore().Op(fault.OpSetData).Once())
			if err := size.Resize(ctx, s, q, 3); err != nil {
				require.ErrorIs(t, err, says)
				require.Equal(t, lost.Hits() > 0, errors.Is(err, session.ErrUnknownOutcome), "%v",
					err)
			}
		})
}

// The size of a semaphore falls below what a call asks for, and the call ends as it hears of that.
func TestAWaitThatCanNotEndSaysSo(t *testing.T) {
	eachEnd(t,
		func(
			t *testing.T, srv *zktest.Server, s *session.Session, ctx *locktest.EndingContext,
			says error,
		) {
			size := queue.NewSize(2)
			q := permitsOf(size, 2)
			other := open(t, srv)
			require.NoError(t, enter(t, q, other).Wait(within(t, soon)))
			waits := wait(enter(t, q, s), ctx)
			synctest.Wait()
			require.NoError(t, size.Resize(within(t, soon), other, q, 1))
			err := <-waits
			require.NotEqual(t, errors.Is(err, session.ErrConfig), errors.Is(err, says), "%v", err)
			if errors.Is(err, session.ErrConfig) {
				require.NotErrorAs(t, err, &queue.LineError{})
			}
		})
}

// A call that queues behind another contender ends with its place in line when its context does,
// and with the session's end when that was first, whatever it was told last.
func TestTheErrorOfACallThatWaitsSaysWhatHasEndedIt(t *testing.T) {
	for name, failure := range map[string]fault.Fault{
		"all well": fault.Delay(0),
		"a create whose reply is lost": fault.CloseAfter().Op(fault.OpCreate,
			fault.OpCreate2).Once(),
		"a predecessor that may not be read": fault.Answer(fault.CodeNoAuth).Op(fault.OpExists,
			fault.OpGetData),
		"a predecessor that seems gone": fault.Answer(fault.CodeNoNode).Op(fault.OpExists,
			fault.OpGetData),
	} {
		t.Run(name, func(t *testing.T) {
			for at, reached := int32(1), true; reached; at++ {
				bubble(t, func(t *testing.T, srv *zktest.Server) {
					ahead := enter(t, aMutex(), open(t, srv))
					require.NoError(t, ahead.Wait(within(t, soon)))
					s := open(t, srv)
					srv.Inject(failure.Session(s.ID()))
					ctx := locktest.EndAt(within(t, time.Second), at, func() {
						require.NoError(t, srv.Expire(s.ID()))
						<-s.Done()
					})
					ticket, err := queue.Enter(ctx, s, aMutex())
					if err == nil {
						err = ticket.Wait(ctx)
					}
					reached = ctx.Reached()
					var line queue.LineError
					require.NotEqual(t, errors.As(err, &line), errors.Is(err, session.ErrExpired),
						"%d: %v", at, err)
				})
			}
		})
	}
}
