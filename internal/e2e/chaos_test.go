package e2e_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/e2e/chaos"
	"github.com/zklock/locker/internal/e2e/servers"
)

var (
	seedFlag = flag.Uint64("chaos.seed", 0, "seed of faults and workers; 0: a new one")
	forFlag  = flag.Duration("chaos.for", 20*time.Second, "length of a round")
	rounds   = flag.Int("chaos.rounds", 3, "rounds of the run on local processes")
	keep     = flag.Bool("chaos.keep", false, "write every round's history to a file")
	only     = flag.String("chaos.only", "", "only the faults whose names contain this")
)

func seed() uint64 {
	if *seedFlag != 0 {
		return *seedFlag
	}
	return rand.Uint64N(1 << 40)
}

// mostVoid is how many rounds may prove nothing, since ZooKeeper itself lost writes (see chaos.Report), before a test
// takes that for its own fault.
const mostVoid = 5

// wreak runs some rounds and fails the test for every problem.
func wreak(t *testing.T, e *servers.Ensemble, n int, each time.Duration, conf chaos.Config) {
	conf.Ensemble, conf.Seed, conf.Only, conf.Keep, conf.Out = e, seed(), *only, *keep, os.Stdout
	r, err := chaos.Open(conf)
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	fmt.Print(r.Head())
	for void := 0; n > 0; {
		rep, err := r.Round(each)
		if rep != nil {
			fmt.Println(rep)
		}
		if err == nil && rep.Void() && void < mostVoid {
			void++
			continue
		}
		n--
		if err != nil || len(rep.Problems) > 0 {
			t.Fatalf("seed %d: %v\nagain: go -C internal/e2e test -race -run '^%s$' -args -chaos.seed %d", conf.Seed, err, t.Name(), conf.Seed)
		}
	}
}

func TestLocksKeepTheirPromisesWhileEverythingBreaks(t *testing.T) {
	e, named, err := servers.Named()
	if err == nil && !named {
		e, err = servers.Local()
	}
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	wreak(t, e, *rounds, *forFlag, chaos.Config{Inside: 2, Outside: 2})
}
