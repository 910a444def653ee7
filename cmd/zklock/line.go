package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/zklock/locker/internal/contender"
	"github.com/zklock/locker/internal/unsealed"
	"github.com/zklock/locker/zklock/admin"

	"github.com/go-zookeeper/zk"
	"golang.org/x/term"

	"github.com/zklock/locker/internal/queue"
	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/zklock"
)

// line shows on a terminal, in one line that is removed when the wait ends, what is waited for, how
// long the wait has lasted, the place in line and the contender ahead. The lock itself watches only
// its predecessor; so line reads the queue's names once a second.
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
	over   bool
	drawn  bool
	queued bool
	ahead  int
	head   string // the znode of the first in line
	who    string // the contender that head belongs to
}

func (a *app) newLine(path string) *line {
	shown := !a.quiet && term.IsTerminal(int(os.Stderr.Fd()))
	return &line{out: a.err, path: path, doing: "connecting", began: time.Now(), shown: shown}
}

// telling calls fn, which is doing something that may take long, and shows that meanwhile.
func (a *app) telling(ctx context.Context, doing string, fn func() error) error {
	l := a.newLine("")
	l.doing = doing
	l.follow(ctx)
	defer l.end()
	return fn()
}

// hooks pass it the lock's own observations.
func (l *line) hooks() zklock.Hooks {
	if !l.shown {
		return zklock.Hooks{}
	}
	return zklock.Hooks{Queued: func(q zklock.LockInfo) { l.set(q.Ahead, q.HolderNode, q.HolderOwner) }}
}

// set records a place in line, and shows it.
func (l *line) set(ahead int, head, who string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if who == "" && l.head == head {
		who = l.who
	}
	l.queued, l.ahead, l.head, l.who = true, ahead, head, who
	l.draw()
}

// connected lets it read the queue for itself.
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
	l.join.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		own, next := "", time.Time{}
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			l.mu.Lock()
			c, queued, head := l.c, l.queued, l.head
			l.draw()
			l.mu.Unlock()
			if began := time.Now(); c != nil && began.After(next) {
				if queued {
					own = l.look(ctx, c, own, head)
				}
				next = time.Now().Add(9 * time.Since(began)) // looks at a long line take a tenth of the time
			}
		}
	})
}

// look reads the place of own, which it finds first. After an error it tries again a second later:
// the wait itself goes on.
func (l *line) look(ctx context.Context, c *zklock.Client, own, head string) string {
	s, err := unsealed.Session(ctx, c)
	if err != nil {
		return ""
	}
	names, stat, err := s.List(ctx, l.path)
	if err == nil {
		names, err = queue.InOrder(ctx, s, l.path, names, stat)
	}
	if err == nil && own == "" {
		own, err = ownIn(ctx, s, l.path, names)
	}
	if err != nil {
		return ""
	}
	ahead, first, ok := recipe.Ahead(names, own)
	if !ok {
		return "" // a new session has a new place
	}
	if ahead == 0 {
		return own // about to hold
	}
	who := ""
	if node := l.path + "/" + first; node != head || l.nameless() {
		who = describe(ctx, s, l.path, first)
	}
	l.set(ahead, l.path+"/"+first, who)
	return own
}

func (l *line) nameless() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.who == ""
}

// ownIn finds the session's own contender.
func ownIn(ctx context.Context, s *session.Session, dir string, names []string) (own string, err error) {
	nodes, err := s.StatsBelow(ctx, dir, names)
	for i, n := range nodes {
		if n.Err == nil && n.Stat.EphemeralOwner == s.ID() {
			own = names[i]
		}
	}
	return own, err
}

// describe returns the owner of a contender.
func describe(ctx context.Context, s *session.Session, dir, name string) string {
	nodes, err := s.ReadBelow(ctx, dir, []string{name}, func(stat zk.Stat) bool { return stat.DataLength <= queue.MaxData })
	if err != nil || nodes[0].Err != nil {
		return ""
	}
	id := contender.Parse(nodes[0].Data)
	return who(newMember(1, admin.Contender{Session: nodes[0].Stat.EphemeralOwner, Token: zklock.Token(nodes[0].Stat.Czxid),
		Owner: id.Owner, Host: id.Host, PID: id.PID}))
}

// place describes the place in words. The caller holds mu.
func (l *line) place() string {
	text := fmt.Sprintf("waiting %s in line", ordinal(l.ahead+1))
	if l.who != "" {
		text += " behind " + l.who
	}
	return text
}

// draw writes the line. The caller holds mu.
func (l *line) draw() {
	waited := time.Since(l.began)
	if !l.shown || l.over || waited < 300*time.Millisecond {
		return // a line for a shorter wait would only flicker
	}
	text := fmt.Sprintf("zklock: %s … %s", l.doing, age(waited))
	if l.queued {
		text = "zklock: " + l.place() + " … " + age(waited)
	}
	width, _, err := term.GetSize(int(os.Stderr.Fd()))
	if err != nil || width < 10 {
		width = 80
	}
	fmt.Fprintf(l.out, "\r\x1b[K%s", short(text, width-1))
	l.drawn = true
}

// end removes the line and joins the goroutine that updates it.
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
