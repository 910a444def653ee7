package session_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
)

// The create has been sent; ctx ends, and the connection breaks before the waiting call runs again.
func TestACreateThatLeftHasAnUnknownOutcomeWhateverBreaksBesides(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // so that it does not run in between
	for name, create := range map[string]func(ctx context.Context, r *session.Rig) error{
		"create and list": func(ctx context.Context, r *session.Rig) error {
			_, _, err := createAndList(ctx, r, "/d/x-", nil, session.EphemeralSequential,
				session.WorldACL())
			return err
		},
		"transact and list": func(ctx context.Context, r *session.Rig) error {
			op := session.OpCreate{Path: "/d/x-", ACL: session.WorldACL(),
				Mode: session.EphemeralSequential}
			_, _, err := transactAndList(ctx, r, []session.Op{op}, []string{"/d"})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := session.NewRig()
			defer r.Stop()
			ctx, cancel := context.WithCancel(context.Background())
			got := make(chan error, 1)
			go func() { got <- create(ctx, r) }()
			<-r.Written()
			runtime.Gosched() // it waits for the replies
			cancel()
			r.Break(errors.New("the connection broke"))
			require.ErrorIs(t, <-got, session.ErrUnknownOutcome)
		})
	}
}

// The reply to a request says that the session has expired, and the connection breaks at the same
// moment. Whichever comes first, the request fails, and is not queued again on the dead connection.
func TestARequestIsNotPutBackOntoADeadLink(t *testing.T) {
	for name, breaksFirst := range map[string]bool{
		"the connection breaks before the reply is handled": true,
		"the reply is handled first":                        false,
	} {
		t.Run(name, func(t *testing.T) {
			r := session.NewRig()
			defer r.Stop()
			got := make(chan error, 1)
			go func() {
				_, _, err := createAndList(context.Background(), r, "/d/x-", nil,
					session.EphemeralSequential, session.WorldACL())
				got <- err
			}()
			<-r.Written()
			breaks := func() { r.Break(errors.New("the connection broke")) }
			if breaksFirst {
				r.BeforeReply = breaks
			}
			require.Error(t, r.Answer(-112, nil)) // the session has expired
			if !breaksFirst {
				breaks()
			}
			select {
			case err := <-got:
				require.ErrorIs(t, err, session.ErrExpired)
			case <-time.After(soon):
				t.Fatal("the call does not return")
			}
		})
	}
}

// The reader has the reply to a watch whose caller has gone. Before the reply is handled, the
// connection fails, and another caller requests the same watch.
func TestALateReplyDoesNotTakeAwayTheNextWatch(t *testing.T) {
	r := session.NewRig()
	defer r.Stop()
	got := make(chan error, 1)
	watch := func(ctx context.Context) { _, err := r.Watch(ctx, "/p"); got <- err }
	ctx, cancel := context.WithCancel(context.Background())
	go watch(ctx)
	<-r.Written()
	cancel()
	require.ErrorIs(t, <-got, context.Canceled)

	r.BeforeReply = func() {
		r.Break(errors.New("silent for too long"))
		go watch(within(t, soon))
		require.Eventually(t, func() bool { return r.WatchedPaths() == 1 }, soon, time.Millisecond)
	}
	require.NoError(t, r.Answer(0, nil))

	r.Reconnect()
	<-r.Written()
	require.NoError(t, r.Answer(-101, nil)) // no node: the watch is set
	require.NoError(t, <-got)
}
