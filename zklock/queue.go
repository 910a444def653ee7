package zklock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/session"
)

// QueuePage is a part of a lock's queue, and how many there are in all.
type QueuePage struct {
	Path       string
	Kind       Kind        // of the first in line, KindElection only if that is in Contenders; "" when nobody is in line
	Permits    int         // of a semaphore: its size at the ensemble, 0 when that may not be read; else 0
	Holding    int         // how many hold
	Waiting    int         // how many wait
	From       int         // how many are in line before the first of Contenders
	Contenders []Contender // without those that went while they were read
}

// Data of contenders that are read for one Queue or QueuePage: short ones always, so that every one is named whom this
// library's usual data name; longer ones, up to recipe.MaxData, as long as there is room. It is taken in order.
const (
	shortData = 1 << 10
	roomData  = 16 << 20
)

// Queue returns who holds the lock at path and who waits for it, in order of arrival: whichever kind of lock it is, and
// other clients' contenders too. A path that does not exist has an empty line. What it returns was true at some time
// during the call. It costs a sync, a list and two reads for each contender, 128 to a round trip, and blocks for those,
// or as long as there is no connection and ctx lasts: for a long line use QueuePage. Contenders whose znodes may not be
// read show what is in their names and, up to ZooKeeper 3.8.3, their token and session. Contenders of a semaphore count
// as holders if its present size has room for them: after a Resize to fewer permits the latest of the holders show as
// waiting until they are done. Where contenders of different kinds share a directory, each is judged among those of its
// own kind.
//
// However many contenders there are, and whatever data they have, a call keeps up to 1 KB of data of each. Longer data,
// of up to 256 KB each, are kept in order up to 16 MB in all; for the rest Data is nil, and Size has the length. The
// reads are made in small pieces, for one call at a time, so that they do not endanger any hold of this Client.
func (c *Client) Queue(ctx context.Context, path string) ([]Contender, error) {
	c.need()
	needContext(ctx)
	page, err := c.page(ctx, path, 0, math.MaxInt)
	return page.Contenders, failed("queue", path, err)
}

// QueuePage returns one page of the queue: up to limit contenders starting at index from, and the total numbers of
// holders and waiters. It reads the data of the contenders that it returns, and of no others.
//
// ErrOption: from or limit is less than 0. Other errors as for Queue.
func (c *Client) QueuePage(ctx context.Context, path string, from, limit int) (QueuePage, error) {
	c.need()
	needContext(ctx)
	if from < 0 || limit < 0 {
		return QueuePage{}, failed("queue", path, fmt.Errorf("%w: from %d, limit %d: neither may be negative", ErrOption, from, limit))
	}
	page, err := c.page(ctx, path, from, limit)
	return page, failed("queue", path, err)
}

// page reads a part of the line. With an error it is the zero value.
func (c *Client) page(ctx context.Context, dir string, from, limit int) (page QueuePage, err error) {
	l, err := c.readLine(ctx, dir)
	if err != nil {
		return QueuePage{}, err
	}
	page = QueuePage{Path: dir, From: from}
	if len(l.names) == 0 {
		return page, nil
	}
	holds, size, err := recipe.Holders(ctx, l.s, dir, l.names)
	if errors.Is(err, zk.ErrNoNode) {
		return page, nil // the directory is gone since the list
	}
	if err != nil {
		return QueuePage{}, err
	}
	first, _ := recipe.Parse(l.names[0])
	page.Kind, page.Permits = kindOf(first.Kind), size
	for _, h := range holds {
		if h {
			page.Holding++
		}
	}
	page.Waiting = len(holds) - page.Holding
	from = min(from, len(holds))
	shown := l.names[from:][:min(limit, len(holds)-from)]
	room := int32(roomData)
	nodes, err := l.s.ReadBelow(ctx, dir, shown, func(stat zk.Stat) bool {
		if stat.DataLength <= shortData {
			return true
		}
		if stat.DataLength > min(room, recipe.MaxData) {
			return false
		}
		room -= stat.DataLength
		return true
	})
	if err != nil {
		return QueuePage{}, err
	}
	tokens, err := l.claimed(ctx, shown)
	if err != nil {
		return QueuePage{}, err
	}
	for i, n := range nodes {
		if errors.Is(n.Err, zk.ErrNoNode) {
			continue // gone since the list
		}
		k := newContender(dir, shown[i], n, holds[from+i])
		if t, ok := tokens[shown[i]]; ok {
			k.Token = t
		}
		if from+i == 0 {
			page.Kind = k.Kind
		}
		page.Contenders = append(page.Contenders, k)
	}
	return page, nil
}

// claimed returns the tokens that contenders have by their names instead of their znodes: a reader that a writer became
// by Downgrade has the writer's. Anybody can write such a name; it is not believed while somebody else has its number, or
// says that he has the same token.
func claimed(names []string) map[string]Token {
	tokens, numbers := map[string]Token{}, map[int32]int{}
	for _, name := range names {
		if n, _ := recipe.Parse(name); n.Czxid != 0 {
			tokens[name] = Token(n.Czxid)
			numbers[n.Number] = 0
		}
	}
	if len(tokens) == 0 {
		return nil
	}
	for _, name := range names {
		n, _ := recipe.Parse(name)
		if _, counts := numbers[n.Number]; counts {
			numbers[n.Number]++
		}
	}
	says := map[Token]int{}
	for _, t := range tokens {
		says[t]++
	}
	maps.DeleteFunc(tokens, func(name string, t Token) bool {
		n, _ := recipe.Parse(name)
		return numbers[n.Number] > 1 || says[t] > 1
	})
	return tokens
}

// claimed is claimed for those of the line that are shown, without the tokens that others have by their znodes: Break
// would remove those others.
func (l lineOf) claimed(ctx context.Context, shown []string) (map[string]Token, error) {
	tokens := claimed(l.names)
	of := map[Token]string{}
	for _, name := range shown {
		if t, ok := tokens[name]; ok {
			of[t] = name
		}
	}
	if len(of) == 0 {
		return nil, nil
	}
	nodes, err := l.s.StatsBelow(ctx, l.dir, l.names)
	if err != nil {
		return nil, err
	}
	for _, n := range nodes {
		if n.Err == nil {
			delete(tokens, of[Token(n.Stat.Czxid)])
		}
	}
	return tokens, nil
}

// lineOf is the contenders of a directory, in order.
type lineOf struct {
	dir   string
	s     *session.Session // that has read it; nil: there was none
	names []string
}

// readLine lists dir after a sync. A directory that does not exist has nobody in line.
func (c *Client) readLine(ctx context.Context, dir string) (l lineOf, err error) {
	l.dir = dir
	if err = checkLook(dir); err != nil {
		return l, err
	}
	if l.s, err = c.Session(ctx); err != nil {
		return l, err
	}
	if err = l.s.Sync(ctx, dir); err != nil {
		return l, err
	}
	children, stat, err := l.s.List(ctx, dir)
	if err == nil {
		l.names, err = recipe.InOrder(ctx, l.s, dir, children, stat)
	}
	if errors.Is(err, zk.ErrNoNode) {
		l.names, err = nil, nil
	}
	return l, err
}

// Break removes the contender with token t from the queue of path, whoever owns it: mostly a holder that hangs. It is a
// tool for administrators. Its znode is deleted only if it still has that token. If the holder uses this library, its hold
// is lost at once (ErrNodeDeleted), but work that is under way is not stopped: only the token and Hold.Multi protect
// against that.
//
// Nil: it was removed. ErrNotHeld: there is no such contender. Other errors as for Queue; after one that matches
// ErrUnknownOutcome it may have been removed. It costs at most half as much as Queue.
func (c *Client) Break(ctx context.Context, path string, t Token) error {
	c.need()
	needContext(ctx)
	l, name, err := c.find(ctx, path, t)
	if err == nil {
		if err = l.s.Delete(ctx, path+"/"+name, -1); errors.Is(err, zk.ErrNoNode) { // by full name, which is never used again
			err = nil
		}
	}
	return failed("break", path, err)
}

// breakSteps is how many contenders Break and Ask look at before they see whether the one is among them.
const breakSteps = 1000

// find returns the line of dir, and the name of the contender in it that has token t.
func (c *Client) find(ctx context.Context, dir string, t Token) (l lineOf, found string, err error) {
	if l, err = c.readLine(ctx, dir); err != nil {
		return l, "", err
	}
	for name, token := range claimed(l.names) {
		if token == t {
			found = name // unless it is another's
		}
	}
	downgraded := false                              // perhaps: a writer has gone since the list, and a reader in its place is not in the list
	for names := l.names; len(names) > 0 && t > 0; { // 0 is shown for a contender that may not be read
		step := names[:min(len(names), breakSteps)]
		names = names[len(step):]
		nodes, err := l.s.StatsBelow(ctx, dir, step)
		if err != nil {
			return l, "", err
		}
		for i, n := range nodes {
			if n.Err == nil && Token(n.Stat.Czxid) == t {
				found, names = step[i], nil
				break
			}
			writer, _ := recipe.Parse(step[i])
			downgraded = downgraded || writer.Kind == recipe.Write && errors.Is(n.Err, zk.ErrNoNode)
		}
	}
	if found == "" && downgraded {
		return c.find(ctx, dir, t)
	}
	if found == "" {
		err = fmt.Errorf("%w: nobody in line has the token %d", ErrNotHeld, t)
	}
	return l, found, err
}
