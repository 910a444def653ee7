package e2e_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/e2e/chaos"
	"github.com/zklock/locker/tests/e2e/servers"
)

// The same suite on the servers that this machine has: an ensemble that the environment names,
// containers, or local processes.
func TestLocksKeepTheirGuaranteesOnTheServersOfThisMachine(t *testing.T) {
	wreak(t, func(t *testing.T) *servers.Ensemble {
		e, why, err := servers.Choose(t.Context())
		if why != "" {
			fmt.Println(why)
		}
		require.NoError(t, err)
		return e
	}, 1, *forFlag, chaos.Config{Inside: 2, Outside: 1})
}

// docker-compose.yml is for people; here it is used once, as an ensemble that is given by name.
func TestComposeFileBringsUpAnEnsembleThatCanBeUsedByName(t *testing.T) {
	addrs, down, err := servers.Compose(t.Context())
	if errors.Is(err, servers.ErrNoDocker) || errors.Is(err, servers.ErrNoCompose) {
		fmt.Printf("docker-compose.yml is not tried: %v\n", err)
		t.Skip(err)
	}
	require.NoError(t, err)
	defer func() { require.NoError(t, down()) }()
	t.Setenv(servers.Env, addrs)
	wreak(t, func(t *testing.T) *servers.Ensemble {
		e, named, err := servers.Named()
		require.NoError(t, err)
		require.True(t, named)
		return e
	}, 1, 5*time.Second, chaos.Config{Inside: 2, Outside: 1})
}
