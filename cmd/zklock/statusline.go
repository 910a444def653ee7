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

// statusLine shows on a terminal what zklock waits for: how long the wait has lasted, our place in
// the lock's queue and the first contender in it. It is one line of text, which is removed when the
// wait ends.
//
// The lock itself watches only its predecessor. So statusLine reads the names of the queue once a
// second.
type statusLine struct {
	out   io.Writer
	path  string
	doing string // what is shown before there is a place
	began time.Time
	shown bool // there is a terminal, and the output is wanted
	join  sync.WaitGroup
	stop  context.CancelFunc

	mu    sync.Mutex     // guards the fields below
	c     *zklock.Client // nil before the client exists
	place *place         // nil before we are in the queue
	drawn bool           // the line is on the terminal
	over  bool           // the wait has ended
}

// place is our place in a lock's queue.
type place struct {
	ahead int    // how many contenders are ahead of us
	first string // the znode of the first contender
	owner string // who owns that, for a terminal; "" if unknown
}

func (a *app) newStatusLine(path string) *statusLine {
	shown := !a.quiet && term.IsTerminal(int(os.Stderr.Fd()))
	return &statusLine{
		out:   a.err,
		path:  path,
		doing: "connecting",
		began: time.Now(),
		shown: shown,
	}
}

// telling calls fn, which may take long, and shows meanwhile what it is doing.
func (a *app) telling(ctx context.Context, doing string, fn func() error) error {
	l := a.newStatusLine("")
	l.doing = doing
	l.follow(ctx)
	defer l.end()
	return fn()
}

// hooks returns the hooks by which the line learns what the lock itself observes.
func (l *statusLine) hooks() zklock.Hooks {
	if !l.shown {
		return zklock.Hooks{}
	}
	queued := func(q zklock.LockInfo) { l.set(place{q.Ahead, q.HolderNode, q.HolderOwner}) }
	return zklock.Hooks{Queued: queued}
}

// set records our place, and shows it. An owner that is already known is kept.
func (l *statusLine) set(p place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.owner == "" && l.place != nil && l.place.first == p.first {
		p.owner = l.place.owner
	}
	l.place = &p
	l.drawLocked()
}

// connected gives the line the client by which it reads the queue itself.
func (l *statusLine) connected(c *zklock.Client) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.c = c
}

// follow keeps the line up to date until ctx ends, or end is called.
func (l *statusLine) follow(ctx context.Context) {
	if !l.shown {
		return
	}
	ctx, l.stop = context.WithCancel(ctx)
	l.join.Go(func() { l.keepUpToDate(ctx) })
}

// keepUpToDate draws the line each second, and reads our place. The reads of a long queue take no
// more than a tenth of the time.
func (l *statusLine) keepUpToDate(ctx context.Context) {
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
		c, last := l.c, l.place
		l.drawLocked()
		l.mu.Unlock()
		began := time.Now()
		if c == nil || !began.After(nextRead) {
			continue
		}
		if last != nil {
			own = l.readPlace(ctx, c, own, *last)
		}
		nextRead = time.Now().Add(9 * time.Since(began))
	}
}

// readPlace reads our place and draws it. own is our contender's name, or "" if it has to be
// searched for. last is the place that is shown.
//
// readPlace returns our contender's name. It returns "" after an error, and if our contender is no
// longer in the queue because a new session has a new place. Then the next call searches again, and
// the wait for the lock goes on.
func (l *statusLine) readPlace(
	ctx context.Context, c *zklock.Client, own string, last place,
) string {
	s, err := unsealed.Session(ctx, c)
	if err != nil {
		return ""
	}
	names, err := l.namesInOrder(ctx, s)
	if err != nil {
		return ""
	}
	if own == "" {
		own, err = ownIn(ctx, s, l.path, names)
		if err != nil {
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
	p := place{ahead: ahead, first: l.path + "/" + first}
	if p.first != last.first || last.owner == "" {
		p.owner = ownerOf(ctx, s, l.path, first)
	}
	l.set(p)
	return own
}

// namesInOrder lists the contenders in the order of the queue.
func (l *statusLine) namesInOrder(ctx context.Context, s *session.Session) ([]string, error) {
	names, stat, err := s.List(ctx, l.path)
	if err != nil {
		return nil, err
	}
	return queue.InOrder(ctx, s, l.path, names, stat)
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

// ownerOf names the owner of a contender. It returns "" if that can't be read.
func ownerOf(ctx context.Context, s *session.Session, dir, name string) string {
	isShort := func(stat zk.Stat) bool { return stat.DataLength <= queue.MaxData }
	nodes, err := s.ReadBelow(ctx, dir, []string{name}, isShort)
	if err != nil || nodes[0].Err != nil {
		return ""
	}
	id := contender.Parse(nodes[0].Data)
	return displayName(newMember(1, admin.Contender{
		Session: nodes[0].Stat.EphemeralOwner,
		Token:   zklock.Token(nodes[0].Stat.Czxid),
		Owner:   id.Owner,
		Host:    id.Host,
		PID:     id.PID,
	}))
}

// String describes the place in words.
func (p place) String() string {
	text := fmt.Sprintf("waiting %s in line", ordinal(p.ahead+1))
	if p.owner != "" {
		text += " behind " + p.owner
	}
	return text
}

// drawLocked writes the line.
func (l *statusLine) drawLocked() {
	waited := time.Since(l.began)
	if !l.shown || l.over || waited < 300*time.Millisecond {
		return // a line for a shorter wait would only flicker
	}
	doing := l.doing
	if l.place != nil {
		doing = l.place.String()
	}
	text := fmt.Sprintf("zklock: %s … %s", doing, age(waited))
	width, _, err := term.GetSize(int(os.Stderr.Fd()))
	if err != nil || width < 10 {
		width = 80
	}
	fmt.Fprintf(l.out, "\r\x1b[K%s", short(text, width-1))
	l.drawn = true
}

// end removes the line, and waits until the goroutine that updates it has ended.
func (l *statusLine) end() {
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
