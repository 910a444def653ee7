package main

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/zklock/locker/examples/internal/fleet/showtest"
)

func TestEveryPeriodsJobIsDoneOnceWhateverHappensToTheHosts(t *testing.T) {
	showtest.Run(t, 3*time.Minute, func(ctx context.Context, self string, out io.Writer) error {
		s := show{host: host{timeout: 2 * time.Second, period: 500 * time.Millisecond}, outage: showtest.Outage(), out: out, self: self}
		return s.run(ctx) // it checks the journal itself
	}, "is killed", "all servers are down", "is stopped", "is told to leave", "each job done once: true")
}
