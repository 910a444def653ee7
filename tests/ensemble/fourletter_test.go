package ensemble_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/ensemble"
)

func TestAServersZxidIsRead(t *testing.T) {
	e := ensemble.Shared(t, 1)
	zxid, err := e.Nodes[0].Zxid()
	require.NoError(t, err)
	require.GreaterOrEqual(t, zxid, int64(0))
}
