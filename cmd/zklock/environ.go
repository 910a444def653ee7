package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/unsealed"
	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/zklock"
)

// lockEnvironment returns the variables that describe the lock to the command.
func lockEnvironment(path string, h *zklock.Hold, session int64) []string {
	return []string{
		"ZKLOCK_PATH=" + path,
		"ZKLOCK_NODE=" + h.Node(),
		fmt.Sprintf("ZKLOCK_TOKEN=%d", h.Token()),
		"ZKLOCK_SESSION=" + sessionID(session),
		envHeld + "=" + os.Getenv(envHeld) + sessionID(session) + " " + h.Node() + "\n",
	}
}

// envHeld names the variable that lists what is held for a command: its own lock, and the locks of
// the commands that it is part of. It has one line for each, with the session and the znode.
const envHeld = "ZKLOCK_HELD"

// nested returns an error if a wait at path would never end, because a command that this process is
// part of holds the lock there, and releases it only after this process has ended. For a semaphore,
// size is how many permits it has, and permits how many of them are wanted. For any other lock size
// is 0, and permits is not used. A reader is refused below a reader, too: a writer may come to
// stand between them. A semaphore that has room for what is held and for what is wanted is waited
// for.
func nested(ctx context.Context, c *zklock.Client, path string, permits, size int) error {
	for line := range strings.Lines(os.Getenv(envHeld)) {
		id, node, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		name, isBelow := strings.CutPrefix(node, path+"/")
		if !isBelow || strings.Contains(name, "/") {
			continue
		}
		held, err := isHeld(ctx, c, node, id)
		if err != nil {
			return err
		}
		if !held {
			continue
		}
		n, _ := recipe.Parse(name)
		permits += n.Permits
		if size > 0 && permits <= size {
			continue // all of them fit
		}
		return usagef("%s is held for the command that this is part of: waiting for it would "+
			"never end; a lock is not re-entrant from one process to another", path)
	}
	return nil
}

// isHeld reports whether the znode exists and belongs to the session with that id. It is false if
// the lock was lost, or if it is in another ensemble.
func isHeld(ctx context.Context, c *zklock.Client, node, id string) (bool, error) {
	s, err := unsealed.Session(ctx, c)
	if err != nil {
		return false, err
	}
	b := s.Batch()
	b.Sync(node)
	stat := b.Exists(node)
	err = b.Do(ctx)
	if errors.Is(err, zk.ErrNoNode) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return sessionID(stat.Value.EphemeralOwner) == id, nil
}

// sessionID returns a session's id as ZooKeeper's own tools write it.
func sessionID(id int64) string { return fmt.Sprintf("0x%x", uint64(id)) }

// without returns the variables of env that none of vars sets.
func without(env, vars []string) []string {
	var rest []string
	for _, kv := range env {
		if !named(kv, vars) {
			rest = append(rest, kv)
		}
	}
	return rest
}

// named reports whether kv sets one of the variables that vars set.
func named(kv string, vars []string) bool {
	name, _, _ := strings.Cut(kv, "=")
	for _, v := range vars {
		if strings.HasPrefix(v, name+"=") {
			return true
		}
	}
	return false
}
