package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNoOrderIsLostAndNoneGoesThroughAStageTwice(t *testing.T) {
	self := filepath.Join(t.TempDir(), "orders")
	build := exec.Command("go", "build", "-o", self, ".")
	build.Stderr = os.Stderr
	require.NoError(t, build.Run())

	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()
	var out bytes.Buffer
	s := show{worker: worker{timeout: 2 * time.Second}, orders: 1500, outage: 5 * time.Second, out: &out, self: self}
	if os.Getenv("ZKLOCK_LONG") != "" {
		s.orders, s.outage = 10_000, 20*time.Second
	}
	require.NoError(t, s.run(ctx), "output so far:\n%s", &out) // it checks the database itself
	text := out.String()
	for _, what := range []string{"is killed", "all servers are down", "is told to leave", "tokens in order: true"} {
		require.Equal(t, 1, strings.Count(text, what), text)
	}
	require.Contains(t, text, "goes on")
}

// The check is not one that finds everything right.
func TestTheCheckFindsWhatIsWrong(t *testing.T) {
	for wrong, spoil := range map[string][]string{
		"1 orders not finished":  {`UPDATE orders SET stage = 2 WHERE id = 1`},
		"1 stages lost":          {`DELETE FROM history WHERE id = 1 AND stage = 3`},
		"1 stages twice":         {`INSERT INTO history (id, stage, token, worker) VALUES (1, 3, 7, 'w')`},
		"1 stages out of order,": {`UPDATE history SET token = 6 WHERE id = 1 AND stage = 2`},
	} {
		t.Run(wrong, func(t *testing.T) {
			s, err := openStore(filepath.Join(t.TempDir(), "orders.db"))
			require.NoError(t, err)
			defer s.close()
			ctx := t.Context()
			require.NoError(t, s.fill(ctx, 2))
			for id := 1; id <= 2; id++ {
				stage, err := s.claim(ctx, id, 7)
				require.NoError(t, err)
				require.Zero(t, stage)
				for stage := 1; stage <= stages; stage++ {
					require.NoError(t, s.advance(ctx, id, stage, 7, "w"))
				}
				_, err = s.claim(ctx, id, 6)
				require.ErrorIs(t, err, errLate)
				require.ErrorIs(t, s.advance(ctx, id, stages, 6, "w"), errLate)
			}
			require.NoError(t, s.check(ctx))
			for _, statement := range spoil {
				_, err := s.db.ExecContext(ctx, statement)
				require.NoError(t, err)
			}
			require.ErrorContains(t, s.check(ctx), wrong)
		})
	}
}
