package main

import (
	"context"
	"io"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/examples/internal/fleet/showtest"
)

func TestNoOrderIsLostAndNoneGoesThroughAStageTwice(t *testing.T) {
	text := showtest.Run(t, 8*time.Minute, func(ctx context.Context, self string, out io.Writer) error {
		s := show{worker: worker{timeout: 2 * time.Second}, orders: 1500, outage: showtest.Outage(), out: out, self: self}
		if showtest.Long() {
			s.orders = 10_000
		}
		return s.run(ctx) // it checks the database itself
	}, "is killed", "all servers are down", "is told to leave", "tokens in order: true")
	require.Contains(t, text, "goes on")
}

// The check does find errors.
func TestTheCheckReportsEveryKindOfError(t *testing.T) {
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
