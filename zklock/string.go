package zklock

import (
	"errors"
	"path"
	"strconv"
	"strings"

	"github.com/zklock/locker/internal/text"
)

// What %v and %s show: in a log line a name, and not what is inside.

func (l lock) text(kind string) string { return kind + " " + text.Foreign(l.path) }

// String returns "mutex" and the path.
func (m *Mutex) String() string { return m.lock.text("mutex") }

// String returns "read/write lock" and the path.
func (m *RWMutex) String() string { return m.lock.text("read/write lock") }

// String returns "semaphore" and the path.
func (s *Semaphore) String() string { return s.lock.text("semaphore") }

// String returns "election" and the path.
func (e *Election) String() string { return e.lock.text("election") }

// String returns "once" and the path.
func (o *Once) String() string { return o.m.lock.text("once") }

// String returns "multi lock" and the paths.
func (m *MultiLock) String() string { return "multi lock " + text.Foreign(strings.Join(m.paths, ", ")) }

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
