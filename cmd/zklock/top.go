package main

import (
	"context"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/zklock/locker/zklock"
)

func (a *app) topCommand() *cobra.Command {
	t := top{a: a, root: "/"}
	cmd := &cobra.Command{
		Use:     "top [flags] [PATH]",
		GroupID: groupLook,
		Short:   "Watch locks and their queues live",
		Long: `Watch the locks at PATH and below it (default: all), as zklock ls lists them, and the queue of the one that is chosen, as
zklock queue shows it; on a terminal. With --json it writes the list again and again, one line each time, and needs none.

Keys: up and down (or k and j) choose a lock, Enter shows its queue, Esc goes back, q ends.`,
		Example: `  zklock top /locks
  zklock top --json --interval 10s /locks >> locks.jsonl`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				t.root = args[0]
			}
			switch {
			case t.every < 100*time.Millisecond:
				return usagef("--interval %v: must be at least 100ms", t.every)
			case !t.json && !(term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stdout.Fd()))):
				return usagef("standard input and output must be a terminal; elsewhere there are top --json and ls")
			}
			if err := t.limits.check(); err != nil {
				return err
			}
			if t.json {
				return a.with(t.stream)
			}
			return a.with(t.live)
		},
	}
	jsonFlag(cmd, &t.json)
	cmd.Flags().DurationVar(&t.every, "interval", time.Second, "look this often")
	t.limits.register(cmd)
	return cmd
}

type top struct {
	a      *app
	root   string
	every  time.Duration
	json   bool
	limits walkLimits
}

// sight is what was found at one look.
type sight struct {
	at    time.Time
	locks []lockEntry
	err   error
}

// stream writes one line of JSON for each look. A look that fails ends it.
func (t *top) stream(ctx context.Context, c *zklock.Client) error {
	tick := time.NewTicker(t.every)
	defer tick.Stop()
	for {
		s := t.look(ctx, c)
		if s.err == nil {
			s.err = t.a.printJSON(s.locks)
		}
		if s.err != nil {
			return s.err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (t *top) look(ctx context.Context, c *zklock.Client) sight {
	ctx, cancel := context.WithTimeout(ctx, max(time.Minute, t.a.conn.patience))
	defer cancel()
	locks, _, err := findLocks(ctx, c, t.root, t.limits)
	return sight{time.Now(), locks, err}
}

// live shows what it sees on a screen until q is pressed.
func (t *top) live(ctx context.Context, c *zklock.Client) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	screen, err := openScreen(os.Stdin, os.Stdout)
	if err != nil {
		cancel()
		return err
	}
	defer screen.close() // also when what follows panics
	seen := make(chan sight)
	looked := make(chan struct{})
	go func() { // joined below
		defer close(looked)
		for ctx.Err() == nil {
			s := t.look(ctx, c)
			select {
			case seen <- s:
			case <-ctx.Done():
			}
			select {
			case <-time.After(t.every):
			case <-ctx.Done():
			}
		}
	}()
	defer func() {
		cancel()
		<-looked
	}()
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, resize...)
	defer signal.Stop(resized)
	v := view{root: t.root, began: time.Now()}
	clock := time.NewTicker(time.Second)
	defer clock.Stop()
	for {
		screen.draw(v.render(time.Now(), screen.width, screen.height))
		select {
		case s := <-seen:
			v.saw(s)
		case k := <-screen.keys:
			if v.key(k) {
				return nil
			}
		case <-resized:
			screen.measure()
		case <-clock.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
