package admin

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/contender"
	"github.com/zklock/locker/internal/queue"
	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/internal/unsealed"
	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/zklock"
)

// Contender holds a lock or waits for it, as its znode shows. Its client wrote Node, Owner, Host
// and Data, at any length; escape them before you show them in a terminal or on a page.
type Contender struct {
	Node    string       // its znode
	Kind    string       // "mutex", "read", "write", "semaphore", or "election" if its data were read and say so
	Holds   bool         // it holds; else it waits
	Permits int          // of a semaphore's contender, else 0
	Token   zklock.Token // what Hold.Token returns, once it holds
	Session int64        // the ZooKeeper session that owns it
	Since   time.Time    // when its znode was made, by the ensemble's clock: when it entered the line
	Owner   string       // WithOwner; for other libraries' clients their text
	Host    string
	PID     int
	Data    []byte // a candidate's value; for other libraries' clients all of it; nil when it was too long to be read
	Size    int    // of all the data of its znode, in bytes, read or not
}

// kindOf is the kind that a contender's name tells.
var kindOf = map[recipe.Kind]string{recipe.Lock: "mutex", recipe.Read: "read", recipe.Write: "write", recipe.Permits: "semaphore"}

func newContender(dir, name string, n session.Node, holds bool) Contender {
	parsed, _ := recipe.Parse(name)
	k := Contender{Node: dir + "/" + name, Kind: kindOf[parsed.Kind], Holds: holds, Permits: parsed.Permits,
		Token: zklock.Token(n.Stat.Czxid), Session: n.Stat.EphemeralOwner, Size: int(n.Stat.DataLength)}
	if n.Stat.Czxid != 0 {
		k.Since = time.UnixMilli(n.Stat.Ctime)
	}
	if n.Err != nil {
		return k
	}
	id := contender.Parse(n.Data)
	k.Owner, k.Host, k.PID, k.Data = id.Owner, id.Host, id.PID, id.Data
	if id.Kind == contender.Election && k.Kind == "mutex" {
		k.Kind = "election"
	}
	return k
}

// QueuePage is a page of a lock's queue: contenders one after the other, and how many are in line
// in all.
type QueuePage struct {
	Path       string
	Kind       string      // of the first in line, "election" only if that is in Contenders; "" when nobody is in line
	Permits    int         // of a semaphore: its size at the ensemble, 0 when that may not be read; else 0
	Holding    int         // how many hold
	Waiting    int         // how many wait
	From       int         // how many are in line before the first of Contenders
	Contenders []Contender // without those that went while they were read
}

// Short data are always read, so that every contender of this library is named; longer ones, up to
// queue.MaxData, in order, while there is room.
const (
	shortData = 1 << 10
	roomData  = 16 << 20
)

// pageRows is how many contenders Queue reads at a time.
const pageRows = 1000

// Queue yields who holds the lock at path and who waits for it, in order of arrival: whichever kind
// of lock it is, and other libraries' contenders too. It reads 1,000 at a time, each part by
// ReadQueue, whose errors it ends with.
func Queue(ctx context.Context, c *zklock.Client, path string) iter.Seq2[Contender, error] {
	return func(yield func(Contender, error) bool) {
		for from := 0; ; from += pageRows {
			page, err := ReadQueue(ctx, c, path, from, pageRows)
			if err != nil {
				yield(Contender{}, err)
				return
			}
			for _, k := range page.Contenders {
				if !yield(k, nil) {
					return
				}
			}
			if from+pageRows >= page.Holding+page.Waiting {
				return
			}
		}
	}
}

// ReadQueue returns up to limit contenders of the line of path, from the index from on, and the
// total numbers of holders and waiters. A path that does not exist has an empty line. The result
// was true at some time during the call.
//
// Contenders whose znodes may not be read show what is in their names and, up to ZooKeeper 3.8.3,
// their token and session. After a Resize of a semaphore to fewer permits the latest of its holders
// show as waiting until they are done. Where contenders of different kinds share a directory, each
// is judged among those of its own kind.
//
// It costs a write without an effect, a list and two reads for each contender that it returns, 128
// to a round trip, and blocks for those, or as long as there is no connection and ctx lasts. It
// keeps up to 1 KB of data of each contender. Longer data, of up to 256 KB each, are kept in order
// up to 16 MB in all; for the rest Data is nil, and Size has the length. The reads are small, and
// made for one call at a time, so as not to endanger the Client's holds.
//
// Errors: zklock.ErrPath; zklock.ErrInvalid when from or limit is less than 0; zklock.ErrClosed;
// zklock.ErrTooLarge; the driver's, as zk.ErrNoAuth; ctx's.
func ReadQueue(ctx context.Context, c *zklock.Client, path string, from, limit int) (QueuePage, error) {
	if from < 0 || limit < 0 {
		return QueuePage{}, failed("queue", path, fmt.Errorf("%w: from %d, limit %d: neither may be negative", zklock.ErrInvalid, from, limit))
	}
	page, err := read(ctx, c, nil, path, from, limit)
	return page, failed("queue", path, err)
}

// read reads a part of the line. With an error it is the zero value. settled is as for list.
func read(ctx context.Context, c *zklock.Client, settled *session.Session, dir string, from, limit int) (page QueuePage, err error) {
	l, err := list(ctx, c, settled, dir)
	if err != nil {
		return QueuePage{}, err
	}
	page = QueuePage{Path: dir, From: from}
	if len(l.names) == 0 {
		return page, nil
	}
	holds, size, err := queue.Holders(ctx, l.s, dir, l.names)
	if errors.Is(err, zk.ErrNoNode) {
		return page, nil // the directory is gone since the list
	}
	if err != nil {
		return QueuePage{}, err
	}
	first, _ := recipe.Parse(l.names[0])
	page.Kind, page.Permits = kindOf[first.Kind], size
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
		fits := stat.DataLength <= min(room, queue.MaxData)
		if fits {
			room -= stat.DataLength
		}
		return fits
	})
	if err != nil {
		return QueuePage{}, err
	}
	for i, n := range nodes {
		if errors.Is(n.Err, zk.ErrNoNode) {
			continue // gone since the list
		}
		k := newContender(dir, shown[i], n, holds[from+i])
		if from+i == 0 {
			page.Kind = k.Kind
		}
		page.Contenders = append(page.Contenders, k)
	}
	return page, nil
}

// listed is the names of a directory's contenders, in order.
type listed struct {
	s     *session.Session // that has read it; nil: there was none
	names []string
}

// list lists dir behind a write of our own, since a leader that has been deposed, and does not know
// it, would answer a sync. A directory that does not exist has nobody in line. If the caller has
// made such a write in the session settled, list makes none.
func list(ctx context.Context, c *zklock.Client, settled *session.Session, dir string) (l listed, err error) {
	if err = contender.CheckDir(dir); err != nil {
		return l, err
	}
	l.s = settled
	if l.s == nil {
		if l.s, err = unsealed.Session(ctx, c); err != nil {
			return l, err
		}
		if err = l.s.Settle(ctx, dir); err != nil {
			return l, err
		}
	}
	children, stat, err := l.s.List(ctx, dir)
	if err == nil {
		l.names, err = queue.InOrder(ctx, l.s, dir, children, stat)
	}
	if errors.Is(err, zk.ErrNoNode) {
		l.names, err = nil, nil
	}
	return l, err
}

func failed(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &zklock.Error{Op: op, Path: path, Err: err}
}
