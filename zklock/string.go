package zklock

import (
	"errors"
	"path"
	"strconv"
	"strings"

	"github.com/zklock/locker/internal/text"
)

// What %v and %s show: in a log line a name, and not what is inside.

// String returns "mutex", or what else the lock is, and the path or paths.
func (l *lock) String() string { return l.noun + " " + text.Foreign(strings.Join(l.dirs, ", ")) }

// String returns the path, or paths, and the token, and how the hold has ended.
func (h *Hold) String() string {
	var paths []string
	for _, node := range h.Nodes() {
		paths = append(paths, path.Dir(node))
	}
	s := "hold of " + text.Foreign(strings.Join(paths, ", ")) + ", token " + strconv.FormatInt(int64(h.Token()), 10)
	switch err := h.Err(); {
	case errors.Is(err, ErrUnlocked):
		s += ", released"
	case err != nil:
		s += ", lost: " + bare(err)
	}
	return s
}

// String returns the connect string, which has no credentials, and how the first session stands.
func (c *Client) String() string {
	c.need()
	return "client of " + text.Foreign(c.connect) + " (" + c.sessions.current().State().String() + ")"
}
