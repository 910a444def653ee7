package e2e_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/e2e/chaos"
	"github.com/zklock/locker/tests/e2e/servers"
)

var (
	seedFlag = flag.Uint64("chaos.seed", 0, "seed of faults and workers; 0: a new one")
	forFlag  = flag.Duration("chaos.for", 20*time.Second, "length of a round")
	rounds   = flag.Int("chaos.rounds", 1, "rounds of the run on local processes")
	keep     = flag.Bool("chaos.keep", false, "write every round's history to a file")
	overlap  = flag.Bool("chaos.overlap", false,
		"break a server also while another one still catches up")
	only = flag.String("chaos.only", "", "only the faults whose names contain this")
)

func seed() uint64 {
	if *seedFlag != 0 {
		return *seedFlag
	}
	return rand.Uint64N(1 << 40)
}

// finder finds or starts servers.
type finder func(t *testing.T) *servers.Ensemble

// mostVoid is how many rounds may prove nothing because ZooKeeper itself failed (see chaos.Report)
// before the test fails.
const mostVoid = 5

// wreak runs n rounds and fails the test for every problem. A round that proves nothing is made
// again, on new servers.
func wreak(t *testing.T, find finder, n int, each time.Duration, conf chaos.Config) {
	conf.Seed, conf.Only, conf.Keep = seed(), *only, *keep
	conf.Overlap, conf.Out = *overlap, os.Stdout
	for void := 0; n > 0; void++ {
		require.LessOrEqual(t, void, mostVoid, "rounds that prove nothing")
		n -= wreakOn(t, find(t), n, each, conf)
	}
}

// wreakOn runs rounds until one proves nothing, and returns how many were good before.
func wreakOn(
	t *testing.T, e *servers.Ensemble, n int, each time.Duration, conf chaos.Config,
) (good int) {
	defer func() { require.NoError(t, e.Close()) }()
	conf.Ensemble = e
	r, err := chaos.Open(conf)
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	fmt.Print(r.Head())
	for ; good < n; good++ {
		rep, err := r.Round(each)
		if rep != nil {
			fmt.Println(rep)
		}
		switch {
		case rep != nil && rep.Void():
			return good
		case err != nil || len(rep.Problems) > 0:
			t.Fatalf("seed %d: %v\nagain: go -C tests/e2e test -race -v -run '^%s$' . -args -chaos.seed %d", conf.Seed, err, t.Name(), conf.Seed)
		}
	}
	return good
}

func TestLocksKeepTheirGuaranteesUnderAllFaults(t *testing.T) {
	wreak(t, func(t *testing.T) *servers.Ensemble {
		e, named, err := servers.Named()
		if err == nil && !named {
			e, err = servers.Local()
		}
		require.NoError(t, err)
		return e
	}, *rounds, *forFlag, chaos.Config{Inside: 2, Outside: 2})
}
