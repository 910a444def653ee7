package main

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/zklock/locker/examples/internal/fleet/showtest"
)

func TestEveryPieceOfWorkIsDoneOnceWhateverHappensToTheLeader(t *testing.T) {
	showtest.Run(t, 3*time.Minute, func(ctx context.Context, self string, out io.Writer) error {
		s := show{worker: worker{timeout: 2 * time.Second}, outage: showtest.Outage(), out: out, self: self}
		return s.run(ctx) // it checks journal and tokens itself
	}, "is told to leave", " leaves\n", "is killed", "all servers are down", "is stopped", "each done once: true")
}
