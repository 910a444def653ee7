package zklock

import (
	"encoding/json"
	"os"
	"strconv"
	"sync"
	"unicode"
	"unicode/utf8"
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
// "" for anything else. What others wrote is not trusted with a terminal: only printable characters pass.
func describe(data []byte) string {
	var id identity
	if json.Unmarshal(data, &id) == nil && id.Host != "" {
		at := id.Host + ":" + strconv.Itoa(id.PID)
		if id.Owner != "" {
			at = id.Owner + " (" + at + ")"
		}
		data = []byte(at)
	}
	if len(data) > 200 || !utf8.Valid(data) {
		return ""
	}
	for _, r := range string(data) {
		if !unicode.IsPrint(r) {
			return ""
		}
	}
	return string(data)
}
