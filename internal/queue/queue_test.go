package queue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/queue"
	"github.com/zklock/locker/internal/session"
)

func TestTheEndOfAWaitIsFoundInItsError(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	own := errors.New("own reason")
	cancel(own)
	err := fmt.Errorf("lock: %w", session.Ended(ctx, nil, queue.LineError{Line: queue.Line{Ahead: 2, Who: "host:7"}}))
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, own)
	var line queue.LineError
	require.ErrorAs(t, err, &line)
	require.Equal(t, 2, line.Ahead)
	require.EqualError(t, err, "lock: context canceled (own reason) while waiting 3rd in line behind host:7")
}

// A neighbour may give its znodes any names, also names of 1 MB.
func TestNamesThatOthersGaveAreCutAndEscapedInErrors(t *testing.T) {
	name := "\u202eevil\u2028\u009b" + strings.Repeat("x", 1<<20)
	for _, msg := range []string{
		queue.Line{Ahead: 1, Holder: "/locks/a/" + name}.String(),
		queue.Line{Ahead: 1, Who: name}.String(),
		queue.LineError{Line: queue.Line{Ahead: 3, Holder: "/locks/a/" + name}}.Error(),
		(&session.OpError{Op: "delete", Path: "/locks/a/" + name, Err: session.ErrConnection}).Error(),
	} {
		require.Contains(t, msg, `\u202eevil\u2028\u009bxxx`)
		require.Less(t, len(msg), 400)
	}
}
