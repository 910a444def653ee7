package pipeline_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/session/internal/pipeline"
	"github.com/zklock/locker/internal/session/internal/wire"
)

func TestWhenAConnectionFailsWhatWasSentIsToldFromWhatWasNot(t *testing.T) {
	p := newPipeline()
	sent, read := write("/sent", 10), read("/sent")
	add(p, sent, read)
	written(t, p)
	unsent := write("/unsent", 10)
	p.Add(unsent)
	p.Abort().Complete("a:1", errors.New("broke"))

	require.ErrorIs(t, sent.Err(), failure.ErrConnection)
	require.ErrorContains(t, sent.Err(), "a:1: broke")
	require.True(t, sent.MayBeDone())
	require.ErrorIs(t, unsent.Err(), failure.ErrNotSent)
	require.False(t, unsent.MayBeDone())

	resend, failed, trouble := pipeline.SortOut([]*pipeline.Request{read, unsent})
	require.Equal(t, []*pipeline.Request{read, unsent}, resend)
	require.Nil(t, failed)
	require.NoError(t, trouble)
	_, failed, _ = pipeline.SortOut([]*pipeline.Request{sent})
	require.Equal(t, sent, failed, "only its caller can know whether to repeat a write")
}

// The heartbeat may give up the connection for its own reason when the reader has seen a frame that
// can't be read, and not yet said so.
func TestARequestWhoseReplyCanNotBeReadFailsWithThatWhateverGivesUpTheConnection(t *testing.T) {
	p := newPipeline()
	asked, behind := read("/asked"), read("/behind")
	add(p, asked, behind)
	written(t, p)
	_, err := p.Take(0, wire.ReplyHeaderLen, now)
	require.ErrorIs(t, err, failure.ErrGarbled)
	p.Abort().Complete("a:1", errors.New("silent"))

	require.ErrorIs(t, asked.Err(), failure.ErrGarbled)
	require.ErrorContains(t, asked.Err(), "a:1")
	_, failed, _ := pipeline.SortOut([]*pipeline.Request{asked})
	require.Equal(t, asked, failed, "on the next connection its reply would be unreadable too")
	resend, _, _ := pipeline.SortOut([]*pipeline.Request{behind})
	require.Equal(t, []*pipeline.Request{behind}, resend)
}

func TestOnlyASessionsOwnRequestsAreReliedOn(t *testing.T) {
	for op, want := range map[int32]bool{
		wire.OpExists: true, wire.OpSetWatches: true, wire.OpSync: true,
		wire.OpPing: false, wire.OpRemoveWatches: false, wire.OpMulti: false,
	} {
		require.Equal(t, want, pipeline.Unawaited(op, "", "", nil).ReliedOn(), "%d", op)
		awaited := pipeline.NewRequest(op, "", "")
		require.False(t, awaited.ReliedOn(), "%d: its call sends it again", op)
	}
}

// The connection's reader may not know yet that the connection has failed.
func TestAReplyThatComesAfterTheConnectionHasFailedCompletesNothing(t *testing.T) {
	p := newPipeline()
	sent, unsent := read("/sent"), read("/unsent")
	p.Add(sent)
	f := written(t, p)[0]
	p.Add(unsent)
	aborted := p.Abort()

	requireWaiting(t, p, 0, 0)
	require.False(t, p.Expects(f.xid))
	_, unheard := p.Quiet(now.Add(time.Second))
	require.Zero(t, unheard)
	_, err := p.Take(f.xid, wire.ReplyHeaderLen, now)
	require.ErrorIs(t, err, failure.ErrGarbled)
	requireEnded(t, nil, sent, unsent)

	aborted.Complete("a:1", errors.New("broke"))
	require.ErrorIs(t, sent.Err(), failure.ErrConnection)
	require.NotErrorIs(t, sent.Err(), failure.ErrGarbled)
	require.ErrorIs(t, unsent.Err(), failure.ErrNotSent)
}

func TestARequestThatGoesToTheNextConnectionHasNotBeenSentThere(t *testing.T) {
	p := newPipeline()
	r := contend("/a")
	p.Add(r)
	take(t, p, written(t, p)[0], wire.ReplyHeaderLen).FailForResend(failure.ErrNotSent)
	resend, _, _ := pipeline.SortOut([]*pipeline.Request{r})
	require.Equal(t, []*pipeline.Request{r}, resend)

	next := newPipeline()
	next.Add(r)
	next.Withdraw([]*pipeline.Request{r})
	requireWaiting(t, next, 0, 0)
	require.False(t, r.MayBeDone())
}

// Two creates were refused together, because of the other one. The list behind a create says that a
// directory is missing: if it is the create's, the create would have been refused alone too.
func TestTheListBehindACreateRefusesItOnlyForItsOwnDirectory(t *testing.T) {
	for path, refused := range map[string]bool{"/mine": true, "/elsewhere": false} {
		t.Run(path, func(t *testing.T) {
			p := newPipeline()
			create, behind := contend("/mine"), list(path)
			add(p, contend("/other"), create, behind)
			all := written(t, p)
			requireOps(t, all, wire.OpMulti, wire.OpGetChildren2)
			body := results(wire.CodeNoNode, wire.CodeInconsistent)
			reply(t, p, all[0], wire.CodeOK, body)
			reply(t, p, all[1], wire.CodeNoNode, nil)

			resend, failed, trouble := pipeline.SortOut([]*pipeline.Request{create, behind})
			require.Nil(t, failed)
			require.NoError(t, trouble)
			if !refused {
				require.Equal(t, []*pipeline.Request{create, behind}, resend)
				return
			}
			require.Empty(t, resend)
			require.NoError(t, create.Err(), "it has a reply")
			require.EqualValues(t, wire.CodeNoNode, create.Header.Code)
		})
	}
}
