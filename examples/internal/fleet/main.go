package fleet

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// Main is the program of an example, after its flags: one host when it has a name, else the show. A signal ends ctx,
// which is no failure; any other error ends the process with 1.
func Main(name string, host, show func(ctx context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	run := show
	if name != "" {
		run = host
	}
	if err := run(ctx); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
