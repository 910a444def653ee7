package zklock

import (
	"context"
	"fmt"
	"time"

	"github.com/zklock/locker/internal/trusted"
	"github.com/zklock/locker/session"
)

// WithGrace: a hold that needs some time to stop ends that much before its session's lease does, while the session goes on.
// Safety: the lease has more than the grace left when the hold begins; from then on its end is watched as the session's own
// end is, by a timer and by every call of the context's methods. Nothing that the client does frees the lock before its Unlock:
// its znode stays.

// graceError is why a hold with a grace ended before its lease. It matches ErrLeaseOver, and ErrLost.
type graceError struct{ d time.Duration }

func (e graceError) Error() string {
	return fmt.Sprintf("zklock: no more than the grace of %v is left of the lease, nothing heard from the ensemble", e.d)
}

func (e graceError) Unwrap() error { return ErrLeaseOver }

// withGrace returns t, or another ticket that holds, with more than the grace left of its lease.
func (l *lock) withGrace(ctx context.Context, t ticket, r request, w *waiting) (ticket, error) {
	for {
		s := t.Session()
		lease := s.ForLocks(trusted.Caller{})
		limit := lease.GraceLimit()
		if l.o.grace >= limit {
			l.c.giveUp(ctx, t)
			return nil, l.graceTooLong(s, limit)
		}
		err := lease.AwaitGrace(ctx, l.o.grace, t.Nodes()[0])
		if err == nil {
			return t, nil
		}
		l.c.giveUp(ctx, t)
		if ctx.Err() != nil {
			return nil, err
		}
		w.Retried(err) // the session is over, or the znode is gone
		if t, err = l.queueUp(ctx, r, w); err != nil {
			return nil, err
		}
	}
}

// checkGrace refuses a grace that is too long for the present session.
func (l *lock) checkGrace(ctx context.Context) error {
	if l.o.grace == 0 {
		return nil
	}
	s, err := l.c.Session(ctx)
	if err != nil {
		return err
	}
	if limit := s.ForLocks(trusted.Caller{}).GraceLimit(); l.o.grace >= limit {
		return l.graceTooLong(s, limit)
	}
	return nil
}

func (l *lock) graceTooLong(s *session.Session, limit time.Duration) error {
	tick := l.c.opts.session.ServerTick
	if tick == 0 {
		tick = session.DefaultServerTick
	}
	return fmt.Errorf("%w: grace %v: is not below %v, which is what a lease has left before each heartbeat is answered, with a session timeout of %v and a server tick of %v: ask for a longer session timeout",
		ErrOption, l.o.grace, limit.Truncate(time.Millisecond), s.Timeout(), tick)
}

func (a *acquisition) lease() trusted.Session { return a.ticket.Session().ForLocks(trusted.Caller{}) }

// lookAtGrace ends the acquisition if no more than its grace is left of the lease.
func (a *acquisition) lookAtGrace() {
	if a.lease().LeaseLeft() <= a.grace {
		a.loseToGrace()
	}
}

// loseToGrace ends the acquisition because no more than its grace is left of the lease. It does not block: what follows is
// done by a goroutine that Close waits for, as it does for every hold.
func (a *acquisition) loseToGrace() {
	cause := graceError{a.grace}
	if a.end(lost, cause) {
		go a.afterLoss(cause)
	}
}
