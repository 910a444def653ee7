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

// lockEnvironment is the variables that describe the lock to the command.
func lockEnvironment(path string, h *zklock.Hold, session int64) []string {
	return []string{
		"ZKLOCK_PATH=" + path,
		"ZKLOCK_NODE=" + h.Node(),
		fmt.Sprintf("ZKLOCK_TOKEN=%d", h.Token()),
		"ZKLOCK_SESSION=" + sessionID(session),
		envHeld + "=" + os.Getenv(envHeld) + sessionID(session) + " " + h.Node() + "\n",
	}
}

// envHeld lists what is held for a command: its own lock and those of the commands that it is part of, one per line,
// each as its session and its znode.
const envHeld = "ZKLOCK_HELD"

// nested refuses to wait at path for a hold of the very command that this is part of, which is not released before this
// ends: permits of a semaphore of that size, or, with 0 and 0, any other lock.
func nested(ctx context.Context, c *zklock.Client, path string, permits, size int) error {
	for line := range strings.Lines(os.Getenv(envHeld)) {
		id, node, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		name, below := strings.CutPrefix(node, path+"/")
		if !below || strings.Contains(name, "/") {
			continue
		}
		s, err := unsealed.Session(ctx, c)
		if err != nil {
			return err
		}
		b := s.Batch()
		b.Sync(node)
		look := b.Exists(node)
		err = b.Do(ctx)
		if errors.Is(err, zk.ErrNoNode) || err == nil && sessionID(look.Value.EphemeralOwner) != id {
			continue // lost, or another ensemble's
		}
		if err != nil {
			return err
		}
		n, _ := recipe.Parse(name)
		if permits += n.Permits; size > 0 && permits <= size {
			continue
		}
		return usagef("%s is held for the command that this is part of: waiting for it would never end; a lock is not "+
			"re-entrant from one process to another", path)
	}
	return nil
}

// sessionID is a session's id as ZooKeeper's own tools write it.
func sessionID(id int64) string { return fmt.Sprintf("0x%x", uint64(id)) }

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
