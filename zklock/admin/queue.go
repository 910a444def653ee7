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
// and Data, at any length: escape them before you show them in a terminal or on a page.
type Contender struct {
	Node string // its znode
	// Kind is "mutex", "read", "write" or "semaphore". It is "election" if the contender's data
	// were read and say so.
	Kind    string
	Holds   bool         // it holds; otherwise it waits
	Permits int          // of a semaphore's contender; otherwise 0
	Token   zklock.Token // what Hold.Token returns, once it holds
	Session int64        // the ZooKeeper session that owns it
	Since   time.Time    // when it entered the line, by the ensemble's clock
	Owner   string       // WithOwner; for other libraries' clients their text
	Host    string
	PID     int
	// Data is a candidate's value or, for other libraries' clients, all of the znode's data. It is
	// nil if the data were not read: see ReadQueue.
	Data []byte
	Size int // of all the data of its znode, in bytes, read or not
}

// kindOf has the kinds that a contender's name tells.
var kindOf = map[recipe.Kind]string{
	recipe.Lock:    "mutex",
	recipe.Read:    "read",
	recipe.Write:   "write",
	recipe.Permits: "semaphore",
}

// newContender returns the contender called name in dir, whose znode is n.
func newContender(dir, name string, n session.Node, holds bool) Contender {
	parsed, _ := recipe.Parse(name)
	k := Contender{
		Node:    dir + "/" + name,
		Kind:    kindOf[parsed.Kind],
		Holds:   holds,
		Permits: parsed.Permits,
		Token:   zklock.Token(n.Stat.Czxid),
		Session: n.Stat.EphemeralOwner,
		Size:    int(n.Stat.DataLength),
	}
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
	Path string
	// Kind is the kind of the first in line, or "" if nobody is in line. It is "election" only if
	// the first in line is in Contenders.
	Kind string
	// Permits is a semaphore's size at the ensemble, or 0 if that may not be read. It is 0 for
	// other locks.
	Permits    int
	Holding    int         // how many hold
	Waiting    int         // how many wait
	From       int         // how many are in line before the first of Contenders
	Contenders []Contender // without those that went while they were read
}

const (
	// shortData is the length up to which data are always read, so that contenders of this library
	// are named, except candidates with long values.
	shortData = 1 << 10
	// roomData bounds the sum of the longer data of a page, of up to queue.MaxData each.
	roomData = 16 << 20
)

// pageRows is how many contenders Queue reads at a time.
const pageRows = 1000

// Queue yields who holds the lock at path and who waits for it, in order of arrival. The lock may
// be of any kind, and other libraries' contenders are yielded too. Queue reads 1,000 contenders at
// a time by ReadQueue. If that fails, Queue yields its error and ends.
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

// ReadQueue returns up to limit contenders of the line of path, the first at index from, and the
// total numbers of holders and waiters. A path that does not exist has an empty line. The result
// was true at some time during the call.
//
// Contenders whose znodes may not be read show what is in their names and, up to ZooKeeper 3.8.3,
// their token and session. After a Resize of a semaphore to fewer permits, the latest of its
// holders show as waiting until they are done. Where contenders of different kinds share a
// directory, each is judged among those of its own kind.
//
// It costs a write without an effect, a list, and two reads for each contender that it returns, 128
// to a round trip. It blocks for those, or as long as there is no connection and ctx lasts. The
// reads are small, and made for one call at a time, so as not to endanger the Client's holds.
//
// It keeps up to 1 KB of data of each contender. Longer data, of up to 256 KB each, are kept in
// order up to 16 MB in all. For the rest, Data is nil, Owner, Host and PID are empty, and Size has
// the length.
//
// Errors:
//   - zklock.ErrPath;
//   - zklock.ErrInvalid if from or limit is less than 0;
//   - zklock.ErrClosed;
//   - zklock.ErrTooLarge;
//   - the driver's, such as zk.ErrNoAuth;
//   - ctx's.
func ReadQueue(
	ctx context.Context, c *zklock.Client, path string, from, limit int,
) (QueuePage, error) {
	if from < 0 || limit < 0 {
		err := fmt.Errorf("%w: from %d, limit %d: neither may be negative",
			zklock.ErrInvalid, from, limit)
		return QueuePage{}, failed("queue", path, err)
	}
	s, err := settled(ctx, c, path)
	if err != nil {
		return QueuePage{}, failed("queue", path, err)
	}
	page, err := read(ctx, s, path, from, limit)
	return page, failed("queue", path, err)
}

// settled returns a session whose reads are up to date: a majority has just confirmed its leader. A
// Sync would not be enough, since a leader that was deposed, and does not know it yet, answers it.
// settled returns zklock.ErrPath if dir can't be a lock's directory.
func settled(ctx context.Context, c *zklock.Client, dir string) (*session.Session, error) {
	if err := contender.CheckDir(dir); err != nil {
		return nil, err
	}
	s, err := unsealed.Session(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := s.Settle(ctx, dir); err != nil {
		return nil, err
	}
	return s, nil
}

// read reads up to limit contenders of the line of dir, the first at index from, by a session that
// is settled. With an error it returns the zero QueuePage.
func read(
	ctx context.Context, s *session.Session, dir string, from, limit int,
) (QueuePage, error) {
	page := QueuePage{Path: dir, From: from}
	names, err := list(ctx, s, dir)
	if err != nil {
		return QueuePage{}, err
	}
	if len(names) == 0 {
		return page, nil
	}
	holds, size, err := queue.Holders(ctx, s, dir, names)
	if errors.Is(err, zk.ErrNoNode) {
		return page, nil // the directory is gone since the list
	}
	if err != nil {
		return QueuePage{}, err
	}
	first, _ := recipe.Parse(names[0])
	page.Kind, page.Permits = kindOf[first.Kind], size
	for _, h := range holds {
		if h {
			page.Holding++
		}
	}
	page.Waiting = len(holds) - page.Holding
	from = min(from, len(names))
	end := from + min(limit, len(names)-from)
	page.Contenders, err = readContenders(ctx, s, dir, names[from:end], holds[from:end])
	if err != nil {
		return QueuePage{}, err
	}
	if len(page.Contenders) > 0 && page.Contenders[0].Node == dir+"/"+names[0] {
		page.Kind = page.Contenders[0].Kind
	}
	return page, nil
}

// readContenders reads the contenders of dir with these names, and leaves out those that are gone.
// holds says which of them hold.
func readContenders(
	ctx context.Context, s *session.Session, dir string, names []string, holds []bool,
) ([]Contender, error) {
	nodes, err := s.ReadBelow(ctx, dir, names, withinRoom())
	if err != nil {
		return nil, err
	}
	var contenders []Contender
	for i, n := range nodes {
		if !errors.Is(n.Err, zk.ErrNoNode) {
			contenders = append(contenders, newContender(dir, names[i], n, holds[i]))
		}
	}
	return contenders, nil
}

// withinRoom returns the function that decides, for one contender of a page after the other,
// whether its data are read: short data always, and longer data while roomData lasts.
func withinRoom() func(zk.Stat) bool {
	room := int32(roomData)
	return func(stat zk.Stat) bool {
		if stat.DataLength <= shortData {
			return true
		}
		if stat.DataLength > min(room, queue.MaxData) {
			return false
		}
		room -= stat.DataLength
		return true
	}
}

// list returns the names of dir's contenders in order of arrival. If dir does not exist, nobody is
// in line.
func list(ctx context.Context, s *session.Session, dir string) ([]string, error) {
	children, stat, err := s.List(ctx, dir)
	if err == nil {
		children, err = queue.InOrder(ctx, s, dir, children, stat)
	}
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return children, nil
}

// failed returns err as the error of the call op, or nil if err is nil.
func failed(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &zklock.Error{Op: op, Path: path, Err: err}
}
