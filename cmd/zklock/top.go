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
	t := top{a: a}
	cmd := &cobra.Command{
		Use:     "top [flags] PATH",
		GroupID: groupLook,
		Short:   "Watch locks and their queues live",
		Long: `Watch, on a terminal, the locks at PATH (default: $ZKLOCK_ROOT) and below it, as zklock ls lists them, and the queue of the
chosen one, as zklock queue shows it. With --json it writes the list again and again, one line each time, and needs no
terminal.

A look costs a list for each znode below PATH, --limit of them at most, and some reads for each lock. The next one follows
after --interval, but not before nine times the duration of the last one has passed; the terminal shows that.

Keys: up and down (or k and j) choose a lock, Enter shows its queue, Esc goes back, q ends.`,
		Example: `  zklock top /locks
  zklock top --json --interval 10s /locks >> locks.jsonl`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			t.root, err = lookRoot(cmd, args)
			switch {
			case err != nil:
				return err
			case t.every < 100*time.Millisecond:
				return usagef("--interval %v: must be at least 100ms", t.every)
			case !t.json && !(term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stdout.Fd()))):
				return usagef("standard input and output must be a terminal; elsewhere there are top --json and ls")
			}
			if err := t.limits.check(); err != nil {
				return err
			}
			if t.rows < 1 {
				return usagef("--rows %d: must be more than 0", t.rows)
			}
			if t.json {
				return a.with(t.stream)
			}
			return a.with(t.live)
		},
	}
	jsonFlag(cmd, &t.json)
	rowsFlag(cmd, &t.rows)
	cmd.Flags().DurationVar(&t.every, "interval", time.Second, "look this often at most")
	t.limits.register(cmd)
	return cmd
}

type top struct {
	a      *app
	root   string
	every  time.Duration
	json   bool
	rows   int
	limits walkLimits
}

// queueRows is how much of the open queue is read: more than the lines of any screen.
const queueRows = 200

// sight is the result of one look: at the tree, or at the open queue.
type sight struct {
	at   time.Time
	took time.Duration
	err  error
	walk
	queue *lockEntry // if it is the latter
}

// restFor is the time from one look to the next: the ensemble must serve other clients as well.
func restFor(every, took time.Duration) time.Duration { return max(every, 9*took) }

// stream writes one line of JSON per look. A look that fails ends it.
func (t *top) stream(ctx context.Context, c *zklock.Client) error {
	for {
		s := t.look(ctx, c, t.rows)
		if s.err == nil {
			s.err = t.a.printJSON(s.locks)
		}
		if s.err != nil {
			return s.err
		}
		select {
		case <-time.After(restFor(t.every, s.took)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (t *top) look(ctx context.Context, c *zklock.Client, rows int) sight {
	ctx, cancel := context.WithTimeout(ctx, max(time.Minute, t.a.conn.patience))
	defer cancel()
	began := time.Now()
	w, err := findLocks(ctx, c, t.root, t.limits, rows)
	return sight{at: time.Now(), took: time.Since(began), walk: w, err: err}
}

func (t *top) lookInto(ctx context.Context, c *zklock.Client, path string) sight {
	ctx, cancel := context.WithTimeout(ctx, t.a.conn.patience)
	defer cancel()
	began := time.Now()
	e, err := readEntry(ctx, c, path, 0, queueRows)
	return sight{at: time.Now(), took: time.Since(began), queue: &e, err: err}
}

// watch reads the tree, and the queue of the latest path from open, each at its own interval, until ctx ends.
func (t *top) watch(ctx context.Context, c *zklock.Client, open <-chan string, seen chan<- sight) {
	path := ""
	var tree, queue time.Time // when the next look at each is due
	for ctx.Err() == nil {
		var s sight
		next := tree
		switch now := time.Now(); {
		case path != "" && !now.Before(queue):
			s = t.lookInto(ctx, c, path)
			queue = s.at.Add(restFor(t.every, s.took))
		case !now.Before(tree):
			s = t.look(ctx, c, 1)
			tree = s.at.Add(restFor(t.every, s.took))
		default:
			if path != "" && queue.Before(tree) {
				next = queue
			}
			select {
			case path = <-open:
				queue = time.Time{}
			case <-time.After(time.Until(next)):
			case <-ctx.Done():
			}
			continue
		}
		for sent := false; !sent; {
			select {
			case seen <- s:
				sent = true
			case path = <-open:
				queue = time.Time{}
			case <-ctx.Done():
				return
			}
		}
	}
}

// live shows the looks on a screen until q is pressed.
func (t *top) live(ctx context.Context, c *zklock.Client) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	screen, err := openScreen(os.Stdin, os.Stdout)
	if err != nil {
		cancel()
		return err
	}
	defer screen.close() // also when the code below panics
	seen, open, looked := make(chan sight), make(chan string, 1), make(chan struct{})
	go func() { // joined below
		defer close(looked)
		t.watch(ctx, c, open, seen)
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
	shown := ""
	for {
		if path := v.queuePath(); path != shown {
			select { // the latest counts
			case <-open:
			default:
			}
			open <- path
			shown = path
		}
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
