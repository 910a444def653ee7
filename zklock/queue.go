package zklock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/text"
	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/session"
)

// Contender holds a lock or waits for it, as its znode shows. Its client wrote Node, Owner, Host and Data, at any length;
// escape them before you show them in a terminal or on a page.
type Contender struct {
	Node    string    // its znode
	Kind    Kind      // KindMutex, KindRead, KindWrite, KindSemaphore, or KindElection if its data were read and say so
	Holds   bool      // it holds; else it waits
	Permits int       // of a semaphore's contender, else 0
	Token   Token     // what Hold.Token returns, once it holds
	Session int64     // the ZooKeeper session that owns it
	Since   time.Time // when its znode was made, by the ensemble's clock: when it entered the line
	Owner   string    // WithOwner; for other libraries' clients their text
	Host    string
	PID     int
	Data    []byte // WithData; for other libraries' clients all of it; nil when it was too long to be read
	Size    int    // of all the data of its znode, in bytes, read or not
}

func newContender(dir, name string, n session.Node, holds bool) Contender {
	parsed, _ := recipe.Parse(name)
	k := Contender{Node: dir + "/" + name, Kind: kindOf[parsed.Kind], Holds: holds, Permits: parsed.Permits,
		Token: Token(n.Stat.Czxid), Session: n.Stat.EphemeralOwner, Size: int(n.Stat.DataLength)}
	if n.Stat.Czxid != 0 {
		k.Since = time.UnixMilli(n.Stat.Ctime)
	}
	if n.Err != nil {
		return k
	}
	var id identity
	if json.Unmarshal(n.Data, &id) == nil && id.Host != "" {
		k.Owner, k.Host, k.PID, k.Data = id.Owner, id.Host, id.PID, id.Data
		if id.Kind == KindElection && k.Kind == KindMutex {
			k.Kind = KindElection
		}
	} else {
		k.Owner, k.Data = describe(n.Data), n.Data
	}
	return k
}

// identity is the data of a contender's znode: JSON, so that any language can read it.
type identity struct {
	Owner string `json:"owner,omitempty"` // WithOwner
	Host  string `json:"host,omitempty"`
	PID   int    `json:"pid,omitempty"`
	Data  []byte `json:"data,omitempty"` // WithData
	Kind  Kind   `json:"kind,omitempty"` // where the znode's name does not tell: KindElection
}

var hostname = sync.OnceValue(func() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown-host" // no reason to refuse a lock
	}
	return name
})

func (o *lockOptions) identity() []byte {
	return identity{Owner: o.owner, Host: hostname(), PID: os.Getpid(), Data: o.data, Kind: o.kind}.encode()
}

func (id identity) encode() []byte {
	data, err := json.Marshal(id)
	if err != nil {
		panic(err) // strings, integers and bytes always marshal
	}
	return data
}

// describe names a contender by its data: "owner (host:pid)" for ours, with what is not printable escaped; the text itself
// for other libraries' short, printable texts; "" for anything else.
func describe(data []byte) string {
	var id identity
	if json.Unmarshal(data, &id) == nil && id.Host != "" {
		return signature(id.Owner, id.Host, id.PID)
	}
	if len(data) > text.Limit || text.Clean(string(data)) != string(data) {
		return ""
	}
	return string(data)
}

// signature names a client, fit for a line: "owner (host:pid)".
func signature(owner, host string, pid int) string {
	at := text.Short(host, maxWho) + ":" + strconv.Itoa(pid)
	if owner == "" {
		return at
	}
	return text.Short(owner, maxWho) + " (" + at + ")"
}

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

// Queue and QueuePage always read short data, so that every contender of this library is named; longer ones, up to
// recipe.MaxData, in order, while there is room.
const (
	shortData = 1 << 10
	roomData  = 16 << 20
)

// Queue returns who holds the lock at path and who waits for it, in order of arrival: whichever kind of lock it is, and
// other libraries' contenders too. A path that does not exist has an empty line. The result was true at some time during
// the call. It costs a sync, a list and two reads for each contender, 128 to a round trip, and blocks for those, or as long
// as there is no connection and ctx lasts: for a long line use QueuePage. Contenders whose znodes may not be read show what
// is in their names and, up to ZooKeeper 3.8.3, their token and session. After a Resize of a semaphore to fewer permits the
// latest of its holders show as waiting until they are done. Where contenders of different kinds share a directory, each is
// judged among those of its own kind.
//
// A call keeps up to 1 KB of data of each contender. Longer data, of up to 256 KB each, are kept in order up to 16 MB in
// all; for the rest Data is nil, and Size has the length. The reads are small, and made for one call at a time, so as not
// to endanger the Client's holds.
func (c *Client) Queue(ctx context.Context, path string) ([]Contender, error) {
	page, err := c.QueuePage(ctx, path, 0, math.MaxInt)
	return page.Contenders, err
}

// QueuePage returns one page of the queue: up to limit contenders starting at index from, and the total numbers of
// holders and waiters. It reads the data of the contenders that it returns, and of no others. ErrOption: from or limit is
// less than 0. Other errors as for Queue.
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
		fits := stat.DataLength <= min(room, recipe.MaxData)
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

// lineOf is the contenders of a directory, in order.
type lineOf struct {
	s     *session.Session // that has read it; nil: there was none
	names []string
}

// readLine lists dir after a sync. A directory that does not exist has nobody in line.
func (c *Client) readLine(ctx context.Context, dir string) (l lineOf, err error) {
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
