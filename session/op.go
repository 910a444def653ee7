package session

import "github.com/go-zookeeper/zk"

// Mode is the kind of a znode.
type Mode int32

// The kinds, with their numbers on the wire.
const (
	Persistent           Mode = 0
	Ephemeral            Mode = 1
	PersistentSequential Mode = 2
	EphemeralSequential  Mode = 3
	Container            Mode = 4 // deleted by the ensemble some time after its last child
)

// WorldACL is ZooKeeper's default access list: every client may do everything.
func WorldACL() []zk.ACL { return zk.WorldACL(zk.PermAll) }

// Op is one write of a transaction: an OpCreate, OpSet, OpDelete or OpCheck.
type Op interface {
	isOp()
}

// OpCreate makes a znode.
type OpCreate struct {
	Path string // of a sequential one without the number
	Data []byte
	ACL  []zk.ACL // for example WorldACL()
	Mode Mode
}

// OpSet replaces the data of a znode.
type OpSet struct {
	Path    string
	Data    []byte
	Version int32 // that the znode must have; -1: any
}

// OpDelete deletes a znode without children.
type OpDelete struct {
	Path    string
	Version int32 // that the znode must have; -1: any
}

// OpCheck writes nothing. The transaction fails if the znode is missing or has another version.
type OpCheck struct {
	Path    string
	Version int32 // -1: any
}

func (OpCreate) isOp() {}
func (OpSet) isOp()    {}
func (OpDelete) isOp() {}
func (OpCheck) isOp()  {}
