// Package contender is what the packages of this module share about who stands in a lock's line.
package contender

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/internal/text"
)

// MaxWho is how many characters of an owner or host are shown in a line.
const MaxWho = 64

// Election is the kind of an election's candidate, whose znode is called as a mutex's contender is.
const Election = "election"

// Identity is the data of a contender's znode: JSON, so that any language can read it.
type Identity struct {
	Owner string `json:"owner,omitempty"`
	Host  string `json:"host,omitempty"`
	PID   int    `json:"pid,omitempty"`
	Data  []byte `json:"data,omitempty"`
	Kind  string `json:"kind,omitempty"` // where the znode's name does not tell: Election
	Term  bool   `json:"term,omitempty"` // of an election's candidate: it has announced its term
}

// Leads reports whether the first in line of an election leads, if its identity is id: it has
// announced its term, or is no candidate of ours, and leads as soon as it is the first.
func (id Identity) Leads() bool { return id.Term || id.Kind != Election }

// Mine is the identity of a contender of this process.
func Mine(owner string, data []byte, kind string) Identity {
	return Identity{Owner: owner, Host: Hostname(), PID: os.Getpid(), Data: data, Kind: kind}
}

// Hostname is this machine's name.
var Hostname = sync.OnceValue(func() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "unknown-host" // no reason to refuse a lock
	}
	return name
})

// Encode returns the data of the znode.
func (id Identity) Encode() []byte {
	data, err := json.Marshal(id)
	if err != nil {
		panic(err) // strings, integers and bytes always marshal
	}
	return data
}

// Parse reads the data of a znode. Those of other libraries are Data, and Owner if they name the
// client.
func Parse(data []byte) Identity {
	var id Identity
	if json.Unmarshal(data, &id) != nil || id.Host == "" {
		return Identity{Owner: Describe(data), Data: data}
	}
	return id
}

// Describe names a contender by its data: "owner (host:pid)" for ours, with what is not printable
// escaped; the text itself for other libraries' short, printable texts; "" for anything else.
func Describe(data []byte) string {
	var id Identity
	if json.Unmarshal(data, &id) == nil && id.Host != "" {
		return Signature(id.Owner, id.Host, id.PID)
	}
	if len(data) > text.Limit || text.Clean(string(data)) != string(data) {
		return ""
	}
	return string(data)
}

// Signature names a client, fit for a line: "owner (host:pid)".
func Signature(owner, host string, pid int) string {
	at := text.Short(host, MaxWho) + ":" + strconv.Itoa(pid)
	if owner == "" {
		return at
	}
	return text.Short(owner, MaxWho) + " (" + at + ")"
}

// CheckDir refuses a path that can't be any client's lock. It accepts names that only other
// libraries give their locks.
func CheckDir(path string) error {
	if path == "/" {
		return fmt.Errorf("%w %q: is the root, which can't be a lock", session.ErrPath, path)
	}
	if strings.HasPrefix(path+"/", "/zookeeper/") {
		return fmt.Errorf("%w %q: belongs to ZooKeeper itself", session.ErrPath, text.Foreign(path))
	}
	return nil
}

// Names in the record of a job, which is beside its lock.
const (
	RecordSuffix = ".done" // behind the lock's path
	RecordLast   = "every"
)

// OfJobRecord reports whether a child of dir is called what a child of a job's record is. The data
// of dir would say for certain whether it is a record, but they cost a request.
func OfJobRecord(dir, name string) bool {
	return strings.HasSuffix(dir, RecordSuffix) && (name == RecordLast || IsRecordBucket(name))
}

// IsRecordBucket reports whether a bucket of a job's record may have that name: two hexadecimal
// digits.
func IsRecordBucket(name string) bool {
	_, err := strconv.ParseUint(name, 16, 8)
	return err == nil && len(name) == 2
}
