package zklock

import (
	"encoding/json"
	"os"
	"strconv"
	"sync"

	"github.com/zklock/locker/internal/text"
)

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
