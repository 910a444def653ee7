package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/go-zookeeper/zk"
	"github.com/spf13/cobra"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/internal/unsealed"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zklock/admin"
)

func (a *app) resizeCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "resize [flags] PATH N",
		GroupID: groupLook,
		Short:   "Change how many permits a lock with permits has",
		Long: `Change the size of the lock with permits at PATH to N, for all clients: more permits wake waiting contenders, fewer let the
holders finish. The --of of other commands does not count. A path without permits is not changed, and ends it with 1.`,
		Example: "  zklock resize /locks/converters 8",
		Args:    cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			n, err := strconv.Atoi(args[1])
			if err != nil || n < 1 {
				return usagef("%q: want the number of permits, more than 0", args[1])
			}
			return a.with(func(ctx context.Context, c *zklock.Client) error {
				return a.resize(ctx, c, args[0], n)
			})
		},
	}
}

// resize sets the number of permits of the semaphore at path.
func (a *app) resize(ctx context.Context, c *zklock.Client, path string, n int) error {
	ctx, cancel := context.WithTimeout(ctx, a.conn.patience)
	defer cancel()
	// ReadQueue returns the error of an invalid path.
	if _, err := admin.ReadQueue(ctx, c, path, 0, 0); err != nil {
		return err
	}
	s, err := unsealed.Session(ctx, c)
	if err != nil {
		return err
	}
	was, err := permitsAt(ctx, s, path)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	if was == 0 {
		return fmt.Errorf("resize %s: is not a semaphore: "+
			"the first zklock run --of N makes it one", path)
	}
	if err := c.Semaphore(path, n).Resize(ctx, n); err != nil {
		return err
	}
	if a.quiet {
		return nil
	}
	_, err = fmt.Fprintf(a.out, "%s: %d permits, before %d\n", clean(path), n, was)
	return err
}

// permitsAt returns the number of permits at path, or 0 if path is not a semaphore's.
func permitsAt(ctx context.Context, s *session.Session, path string) (int, error) {
	data, _, err := s.Get(ctx, path)
	if err != nil {
		return 0, err
	}
	var state struct {
		Size int `json:"size"`
	}
	if json.Unmarshal(data, &state) != nil || state.Size < 0 {
		return 0, nil
	}
	return state.Size, nil
}
