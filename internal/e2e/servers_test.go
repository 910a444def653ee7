package e2e_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/e2e/chaos"
	"github.com/zklock/locker/internal/e2e/servers"
)

// The same suite on what is here: an ensemble that the environment names, containers, or else local processes.
func TestLocksKeepTheirPromisesOnWhateverServersThereAre(t *testing.T) {
	e, why, err := servers.Choose(t.Context())
	if why != "" {
		fmt.Println(why)
	}
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	wreak(t, e, 1, chaos.Config{Inside: 2, Outside: 1})
}
