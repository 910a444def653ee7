package zklock

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/zklock/locker/internal/contender"
	"github.com/zklock/locker/internal/queue"
	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/internal/text"
	"github.com/zklock/locker/recipe"
)

// maxComponent bounds a component that KeyPath makes; a longer one is cut and told apart by a hash.
const maxComponent = 200

// KeyPath returns a path below root with one component that stands for key: any string becomes a safe one, and different keys
// become different ones. Letters, digits, '-', '_' and inner '.' stay; other bytes become %XX. A key too long for that is cut
// and ends in its SHA-256. The empty key has no path (ErrPath).
func KeyPath(root, key string) string {
	root = strings.TrimSuffix(root, "/")
	var b strings.Builder
	for i := range len(key) {
		c := key[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.' && i > 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	name := b.String()
	// Names that mean something to a lock whose path is root, to a job beside it, or to ZooKeeper, get one more character as %XX.
	if _, ok := recipe.Parse(name); ok || strings.HasSuffix(name, contender.RecordSuffix) || name == queue.Resized {
		last := len(name) - 1
		name = fmt.Sprintf("%s%%%02x", name[:last], name[last])
	} else if root == "" && name == "zookeeper" {
		name = "%7aookeeper"
	}
	if len(name) > maxComponent {
		name = fmt.Sprintf("%s~%x", name[:maxComponent-65], sha256.Sum256([]byte(key)))
	}
	return root + "/" + name
}

// nameRoom is what a contender's name takes behind the lock's path.
const nameRoom = 80

func checkLockPath(path string) error {
	if err := contender.CheckDir(path); err != nil {
		return err
	}
	if err := session.CheckPath(path); err != nil {
		return err
	}
	for name := range strings.SplitSeq(path, "/") {
		if _, contender := recipe.Parse(name); contender {
			return fmt.Errorf("%w %q: %q is what a contender's znode is called: a lock at the path above it would wait for it for ever (see KeyPath)",
				ErrPath, text.Foreign(path), text.Foreign(name))
		}
	}
	if err := session.CheckPath(path + "/" + strings.Repeat("x", nameRoom)); err != nil {
		return fmt.Errorf("%w %q: leaves no room for a contender's name in 4096 bytes", ErrPath, path[:200]+"…")
	}
	return nil
}
