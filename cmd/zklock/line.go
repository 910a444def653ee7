package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"golang.org/x/term"

	"github.com/zklock/locker/internal/contender"
	"github.com/zklock/locker/internal/queue"
	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/internal/unsealed"
	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zklock/admin"
)

// line shows on a terminal what zklock waits for: how long the wait has lasted, the place in line
// and the contender ahead. It is one line of text, which is removed when the wait ends.
//
// The lock itself watches only its predecessor. So line reads the names of the queue once a second.
type line struct {
	out   io.Writer
	path  string
	doing string // before there is a place in line
	began time.Time
	shown bool // there is a terminal, and the output is wanted
	join  sync.WaitGroup
	stop  context.CancelFunc

	mu     sync.Mutex     // guards the fields below
	c      *zklock.Client // nil before the client exists
	over   bool           // the wait has ended
	drawn  bool           // the line is on the terminal
	queued bool           // there is a place in line: the fields below are known
	ahead  int
	head   string // the znode of the first in line
	who    string // the contender that head belongs to
}

func (a *app) newLine(path string) *line {
	shown := !a.quiet && term.IsTerminal(int(os.Stderr.Fd()))
	return &line{out: a.err, path: path, doing: "connecting", began: time.Now(), shown: shown}
}

// telling calls fn, which may take long, and shows meanwhile what it is doing.
func (a *app) telling(ctx context.Context, doing string, fn func() error) error {
	l := a.newLine("")
	l.doing = doing
	l.follow(ctx)
	defer l.end()
	return fn()
}

// hooks returns the hooks by which the line learns what the lock itself observes.
func (l *line) hooks() zklock.Hooks {
	if !l.shown {
		return zklock.Hooks{}
	}
	queued := func(q zklock.LockInfo) { l.set(q.Ahead, q.HolderNode, q.HolderOwner) }
	return zklock.Hooks{Queued: queued}
}

// set records a place in line, and shows it.
func (l *line) set(ahead int, head, who string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if who == "" && l.head == head {
		who = l.who
	}
	l.queued, l.ahead, l.head, l.who = true, ahead, head, who
	l.drawLocked()
}

// connected gives the line the client by which it reads the queue itself.
func (l *line) connected(c *zklock.Client) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.c = c
}

// follow keeps the line up to date until ctx ends, or end is called.
func (l *line) follow(ctx context.Context) {
	if !l.shown {
		return
	}
	ctx, l.stop = context.WithCancel(ctx)
	l.join.Go(func() { l.keepUpToDate(ctx) })
}

// keepUpToDate draws the line each second, and reads the place in line. The reads of a long line
// take no more than a tenth of the time.
func (l *line) keepUpToDate(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	own := "" // the name of our own contender, once it is known
	nextRead := time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		l.mu.Lock()
		c, queued, head := l.c, l.queued, l.head
		l.drawLocked()
		l.mu.Unlock()
		began := time.Now()
		if c == nil || !began.After(nextRead) {
			continue
		}
		if queued {
			own = l.readPlace(ctx, c, own, head)
		}
		nextRead = time.Now().Add(9 * time.Since(began))
	}
}

// readPlace reads the place in line and draws it. own is our contender's name, or "" if it has to
// be searched for. head is the znode of the first in line that is shown.
//
// readPlace returns our contender's name. It returns "" after an error, and if our contender is no
// longer in line because a new session has a new place. Then the next call searches again, and the
// wait for the lock goes on.
func (l *line) readPlace(ctx context.Context, c *zklock.Client, own, head string) string {
	s, err := unsealed.Session(ctx, c)
	if err != nil {
		return ""
	}
	names, err := l.namesInOrder(ctx, s)
	if err != nil {
		return ""
	}
	if own == "" {
		if own, err = ownIn(ctx, s, l.path, names); err != nil {
			return ""
		}
	}
	ahead, first, ok := recipe.Ahead(names, own)
	if !ok {
		return ""
	}
	if ahead == 0 {
		return own // about to hold
	}
	node := l.path + "/" + first
	who := ""
	if node != head || l.nameless() {
		who = describe(ctx, s, l.path, first)
	}
	l.set(ahead, node, who)
	return own
}

// namesInOrder lists the contenders in the order of the line.
func (l *line) namesInOrder(ctx context.Context, s *session.Session) ([]string, error) {
	names, stat, err := s.List(ctx, l.path)
	if err != nil {
		return nil, err
	}
	return queue.InOrder(ctx, s, l.path, names, stat)
}

// nameless reports whether the owner of the first in line is unknown.
func (l *line) nameless() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.who == ""
}

// ownIn returns the name of the session's own contender, or "" if names has none.
func ownIn(
	ctx context.Context, s *session.Session, dir string, names []string,
) (own string, err error) {
	nodes, err := s.StatsBelow(ctx, dir, names)
	for i, n := range nodes {
		if n.Err == nil && n.Stat.EphemeralOwner == s.ID() {
			own = names[i]
		}
	}
	return own, err
}

// describe names the owner of a contender. It returns "" if that can't be read.
func describe(ctx context.Context, s *session.Session, dir, name string) string {
	isShort := func(stat zk.Stat) bool { return stat.DataLength <= queue.MaxData }
	nodes, err := s.ReadBelow(ctx, dir, []string{name}, isShort)
	if err != nil || nodes[0].Err != nil {
		return ""
	}
	id := contender.Parse(nodes[0].Data)
	return who(newMember(1, admin.Contender{
		Session: nodes[0].Stat.EphemeralOwner,
		Token:   zklock.Token(nodes[0].Stat.Czxid),
		Owner:   id.Owner,
		Host:    id.Host,
		PID:     id.PID,
	}))
}

// placeLocked describes the place in words.
func (l *line) placeLocked() string {
	text := fmt.Sprintf("waiting %s in line", ordinal(l.ahead+1))
	if l.who != "" {
		text += " behind " + l.who
	}
	return text
}

// drawLocked writes the line.
func (l *line) drawLocked() {
	waited := time.Since(l.began)
	if !l.shown || l.over || waited < 300*time.Millisecond {
		return // a line for a shorter wait would only flicker
	}
	text := fmt.Sprintf("zklock: %s … %s", l.doing, age(waited))
	if l.queued {
		text = "zklock: " + l.placeLocked() + " … " + age(waited)
	}
	width, _, err := term.GetSize(int(os.Stderr.Fd()))
	if err != nil || width < 10 {
		width = 80
	}
	fmt.Fprintf(l.out, "\r\x1b[K%s", short(text, width-1))
	l.drawn = true
}

// end removes the line, and waits until the goroutine that updates it has ended.
func (l *line) end() {
	l.mu.Lock()
	l.over = true
	if l.drawn {
		fmt.Fprint(l.out, "\r\x1b[K")
	}
	l.mu.Unlock()
	if l.stop != nil {
		l.stop()
	}
	l.join.Wait()
}
