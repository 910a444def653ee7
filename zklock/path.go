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

// KeyPath returns a path below root with one component that stands for key: any string becomes a
// safe one, and different keys become different ones. Letters, digits, '-', '_' and inner '.' stay;
// other bytes become %XX. A key too long for that is cut and ends in its SHA-256. The empty key has
// no path (ErrPath).
func KeyPath(root, key string) string {
	root = strings.TrimSuffix(root, "/")
	name := withoutMeaning(root, escaped(key))
	if len(name) > maxComponent {
		name = fmt.Sprintf("%s~%x", name[:maxComponent-65], sha256.Sum256([]byte(key)))
	}
	return root + "/" + name
}

// escaped returns key with %XX for each byte that is not safe.
func escaped(key string) string {
	var b strings.Builder
	for i := range len(key) {
		if isSafe(key[i]) || key[i] == '.' && i > 0 {
			b.WriteByte(key[i])
		} else {
			fmt.Fprintf(&b, "%%%02X", key[i])
		}
	}
	return b.String()
}

func isSafe(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_':
		return true
	}
	return false
}

// withoutMeaning returns name, the name of a znode below root. If it means something to a lock
// whose path is root, to a job beside it, or to ZooKeeper, one more character becomes %xx.
func withoutMeaning(root, name string) string {
	if root == "" && name == "zookeeper" {
		return "%7aookeeper"
	}
	_, isContender := recipe.Parse(name)
	if isContender || strings.HasSuffix(name, contender.RecordSuffix) || name == queue.Resized {
		last := len(name) - 1
		return fmt.Sprintf("%s%%%02x", name[:last], name[last])
	}
	return name
}

// nameRoom bounds the length of a contender's name: the longest is the release mark of a candidate
// of the highest rank that has stepped aside.
const nameRoom = 100

func checkLockPath(path string) error {
	if err := contender.CheckDir(path); err != nil {
		return err
	}
	if err := session.CheckPath(path); err != nil {
		return err
	}
	for name := range strings.SplitSeq(path, "/") {
		if _, isContender := recipe.Parse(name); isContender {
			return fmt.Errorf("%w %q: %q is what a contender's znode is called: "+
				"a lock at the path above it would wait for it forever (see KeyPath)",
				ErrPath, text.Foreign(path), text.Foreign(name))
		}
	}
	if err := session.CheckPath(path + "/" + strings.Repeat("x", nameRoom)); err != nil {
		return fmt.Errorf("%w %q: leaves no room for a contender's name in 4096 bytes", ErrPath,
			path[:200]+"…")
	}
	return nil
}
