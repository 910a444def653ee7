package zklock

import (
	"encoding/json"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/zklock/locker/internal/text"
	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/session"
)

// Contender holds a lock or waits for it, as its znode shows. Node, Owner, Host and Data are what its client wrote, at
// any length; escape them before you show them in a terminal or on a page.
type Contender struct {
	Node    string    // its znode
	Kind    Kind      // KindMutex, KindRead, KindWrite, KindSemaphore, or KindElection if its data were read and say so
	Holds   bool      // it holds; else it waits
	Permits int       // of a semaphore's contender, else 0
	Token   Token     // its fencing token, should it come to hold or hold already: what Hold.Token returns
	Session int64     // the ZooKeeper session that owns it
	Since   time.Time // when its znode was made, by the ensemble's clock: when it entered the line, or was downgraded
	Owner   string    // WithOwner; for other clients the text that they put there
	Host    string
	PID     int
	Data    []byte          // WithData; for other clients all that they put there; nil when they were too many to be read
	Asked   *ReleaseRequest // to let go; nil: it has not been asked, or its data were not read
	Size    int             // of all the data of its znode, in bytes, read or not
}

// newContender reads the child name of dir.
func newContender(dir, name string, n session.Node, holds bool) Contender {
	parsed, _ := recipe.Parse(name)
	k := Contender{Node: dir + "/" + name, Kind: kindOf(parsed.Kind), Holds: holds, Permits: parsed.Permits,
		Token: Token(n.Stat.Czxid), Session: n.Stat.EphemeralOwner, Size: int(n.Stat.DataLength)}
	if n.Stat.Czxid != 0 {
		k.Since = time.UnixMilli(n.Stat.Ctime)
	}
	if n.Err != nil {
		return k
	}
	k.Asked = releaseRequest(n.Data, time.UnixMilli(n.Stat.Mtime))
	var id identity
	if json.Unmarshal(n.Data, &id) == nil && id.Host != "" {
		k.Owner, k.Host, k.PID, k.Data = id.Owner, id.Host, id.PID, id.Data
		if id.Kind == KindElection && k.Kind == KindMutex {
			k.Kind = KindElection
		}
	} else if string(n.Data) != revoke { // which has taken the place of what it said of itself
		k.Owner, k.Data = describe(n.Data), n.Data
	}
	return k
}

// identity is what a contender's znode says of it: JSON, so that any language can read it.
type identity struct {
	Owner string       `json:"owner,omitempty"` // WithOwner
	Host  string       `json:"host,omitempty"`
	PID   int          `json:"pid,omitempty"`
	Data  []byte       `json:"data,omitempty"`  // WithData
	Asked *releaseWish `json:"asked,omitempty"` // Client.Ask
	Kind  Kind         `json:"kind,omitempty"`  // where the znode's name does not tell: KindElection
}

var hostname = sync.OnceValue(func() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown-host" // no reason to refuse a lock
	}
	return name
})

func (o *lockOptions) identity() ([]byte, error) {
	return json.Marshal(identity{Owner: o.owner, Host: hostname(), PID: os.Getpid(), Data: o.data, Kind: o.kind})
}

// describe names a contender by its data: "owner (host:pid)" for ours, the text itself for other clients' short texts,
// "" for anything else. Only printable characters pass: what is not printable in an owner or a host is escaped.
func describe(data []byte) string {
	var id identity
	if json.Unmarshal(data, &id) == nil && id.Host != "" {
		at := text.Short(id.Host, maxWho) + ":" + strconv.Itoa(id.PID)
		if id.Owner != "" {
			return text.Short(id.Owner, maxWho) + " (" + at + ")"
		}
		return at
	}
	if len(data) > text.Limit || text.Clean(string(data)) != string(data) {
		return ""
	}
	return string(data)
}
