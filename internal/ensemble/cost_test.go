package ensemble_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/ensemble"
)

func TestAServersZxidAndProcessorTimeAreRead(t *testing.T) {
	e := ensemble.Shared(t, 1)
	e.NeedControl(t)
	n := e.Nodes[0]
	cpu, err := n.CPU()
	require.NoError(t, err)
	require.Positive(t, cpu, "it has started")
	zxid, err := n.Zxid()
	require.NoError(t, err)
	require.GreaterOrEqual(t, zxid, int64(0))
}
