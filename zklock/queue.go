package zklock

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/session"
)

// QueuePage is a part of a lock's queue, and how many there are in all.
type QueuePage struct {
	Path       string
	Kind       string      // of the first in line; "" when nobody is in line
	Holding    int         // how many hold
	Waiting    int         // how many wait
	From       int         // how many stand in line before the first of Contenders
	Contenders []Contender // without those that went while they were read
}

// Data of contenders that are read for one Queue or QueuePage: short ones always, so that every one is named whom this
// library's usual data name; longer ones, up to recipe.MaxData, as long as there is room. It is taken in order.
const (
	shortData = 1 << 10
	roomData  = 16 << 20
)

// Queue returns who holds the lock at path and who waits for it, in order of arrival: whichever kind of lock it is, and
// other clients' contenders too. A path that does not exist has nobody in line. What it returns was so at some time
// during the call. It costs a sync, a list and two reads for each contender, 128 to a round trip, and blocks for those, or
// as long as there is no connection and ctx lasts: for a long line use QueuePage. Contenders whose znodes may not be read
// show what their names tell and, up to ZooKeeper 3.8.3, their token and session. Of a semaphore, those count as holders
// for whom its present size has room: after a Resize to fewer permits the latest of the holders show as waiting until they
// are done. Where contenders of different kinds share a directory, each is judged among those of its own.
//
// However many contenders there are, and whatever they put there, a call keeps at most 1 KB of data of each and 16 MB of
// longer ones, of at most 256 KB each, in order: of the others Size tells, and Data is nil. The reads are made in small
// pieces, one call's at a time, so that no hold of this Client is endangered by them.
func (c *Client) Queue(ctx context.Context, path string) ([]Contender, error) {
	c.need()
	needContext(ctx)
	page, err := c.page(ctx, path, 0, -1)
	if err != nil {
		return nil, &lockError{"queue", path, err}
	}
	return page.Contenders, nil
}

// QueuePage is Queue for a part of the line, at most limit contenders from the one on that has from others before it, and
// for the numbers of those who hold and wait in all. It reads data of those only that it returns.
//
// ErrOption: from or limit is less than 0. Otherwise as for Queue.
func (c *Client) QueuePage(ctx context.Context, path string, from, limit int) (QueuePage, error) {
	c.need()
	needContext(ctx)
	if from < 0 || limit < 0 {
		return QueuePage{}, &lockError{"queue", path, fmt.Errorf("%w: from %d, limit %d: is less than 0", ErrOption, from, limit)}
	}
	page, err := c.page(ctx, path, from, limit)
	if err != nil {
		return QueuePage{}, &lockError{"queue", path, err}
	}
	return page, nil
}

// page reads a part of the line; limit -1: all of it.
func (c *Client) page(ctx context.Context, dir string, from, limit int) (QueuePage, error) {
	page := QueuePage{Path: dir, From: from}
	l, err := c.readLine(ctx, dir)
	if err != nil || len(l.names) == 0 {
		return page, err
	}
	holds, err := recipe.Holders(ctx, l.s, dir, l.names)
	if errors.Is(err, zk.ErrNoNode) {
		return page, nil // the directory is gone since the list
	}
	if err != nil {
		return page, err
	}
	first, _ := recipe.Parse(l.names[0])
	page.Kind = first.Kind.String()
	for _, h := range holds {
		if h {
			page.Holding++
		}
	}
	page.Waiting = len(holds) - page.Holding
	from = min(from, len(holds))
	end := len(holds)
	if limit >= 0 {
		end = from + min(limit, end-from)
	}
	room := int32(roomData)
	nodes, err := l.s.ReadBelow(ctx, dir, l.names[from:end], func(stat zk.Stat) bool {
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
		return page, err
	}
	tokens, err := l.claimed(ctx, dir, l.names[from:end])
	if err != nil {
		return page, err
	}
	for i, n := range nodes {
		if errors.Is(n.Err, zk.ErrNoNode) {
			continue // gone since the list
		}
		name := l.names[from+i]
		k := newContender(dir, name, n, holds[from+i])
		if t, ok := tokens[name]; ok {
			k.Token = t
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
func (l lineOf) claimed(ctx context.Context, dir string, shown []string) (map[string]Token, error) {
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
	nodes, err := l.s.StatsBelow(ctx, dir, l.names)
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

// lineOf is who stands in a directory, in order.
type lineOf struct {
	s     *session.Session
	names []string
}

// readLine lists dir after a sync. A directory that does not exist has nobody in line.
func (c *Client) readLine(ctx context.Context, dir string) (lineOf, error) {
	if err := checkLook(dir); err != nil {
		return lineOf{}, err
	}
	s, err := c.Session(ctx)
	if err != nil {
		return lineOf{}, err
	}
	if err := s.Sync(ctx, dir); err != nil {
		return lineOf{}, err
	}
	children, stat, err := s.List(ctx, dir)
	if errors.Is(err, zk.ErrNoNode) {
		return lineOf{}, nil
	}
	if err != nil {
		return lineOf{}, err
	}
	names, err := recipe.InOrder(ctx, s, dir, children, stat)
	return lineOf{s, names}, err
}

// Break removes the contender with token t from the line of path, whoever it is: a holder that hangs, mostly. It is an
// administrator's tool. Its znode is deleted if it is still that one; a holder of ours hears of it at once
// (ErrNodeDeleted), but what it has under way is not stopped by that: only the token and Hold.Multi are.
//
// Nil: it was removed. ErrNotHeld: there is no such contender. Otherwise as for Queue, of which it costs half at most;
// after an error that matches ErrUnknownOutcome it may have been removed.
func (c *Client) Break(ctx context.Context, path string, t Token) error {
	c.need()
	needContext(ctx)
	if err := c.breakOne(ctx, path, t); err != nil {
		return &lockError{"break", path, err}
	}
	return nil
}

// breakSteps is how many contenders Break looks at before it sees whether the one is among them.
const breakSteps = 1000

func (c *Client) breakOne(ctx context.Context, dir string, t Token) error {
	l, err := c.readLine(ctx, dir)
	if err != nil {
		return err
	}
	found := ""
	for name, token := range claimed(l.names) {
		if token == t {
			found = name // unless it is another's
		}
	}
	for names := l.names; len(names) > 0 && t > 0; { // 0 is what one has whose znode may not be read
		step := names[:min(len(names), breakSteps)]
		names = names[len(step):]
		nodes, err := l.s.StatsBelow(ctx, dir, step)
		if err != nil {
			return err
		}
		for i, n := range nodes {
			if n.Err == nil && Token(n.Stat.Czxid) == t {
				found, names = step[i], nil
				break
			}
		}
	}
	if found == "" {
		return fmt.Errorf("%w: nobody in line has the token %d", ErrNotHeld, t)
	}
	err = l.s.Delete(ctx, dir+"/"+found, -1) // by full name, which is never used again
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}
