package pipeline_test

import (
	"errors"
	"testing"

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
		require.False(t, pipeline.NewRequest(op, "", "").ReliedOn(), "%d: its call sends it again", op)
	}
}
