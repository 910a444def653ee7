package main

import (
	"fmt"
	"strings"

	"github.com/zklock/locker/zklock"
)

// lockEnvironment is what the command is told of its lock.
func lockEnvironment(path string, h *zklock.Hold, session int64) []string {
	return []string{
		"ZKLOCK_PATH=" + path,
		"ZKLOCK_NODE=" + h.Node(),
		fmt.Sprintf("ZKLOCK_TOKEN=%d", h.Token()),
		"ZKLOCK_SESSION=" + sessionID(session),
	}
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
