package fault

import "strconv"

// Op is the type of a request, as its number on the wire. Faults and counters are selected by it.
type Op int32

// The operations that a client can request, and two pseudo operations that only faults and counters
// know: OpNotify stands for a notification on its way to a client, OpConnect for the handshake.
const (
	OpNotify Op = 0 // an event on its way to a client
	// persistent, ephemeral or sequential, by its flags; answers with the path
	OpCreate          Op = 1
	OpDelete          Op = 2  // a node without children
	OpExists          Op = 3  // with a watch, also for a node that does not exist yet
	OpGetData         Op = 4  // with a watch
	OpSetData         Op = 5  // answers with the stat
	OpGetACL          Op = 6  // digests masked for clients without ADMIN
	OpSetACL          Op = 7  // checks and increments a version of its own
	OpGetChildren     Op = 8  // with a watch; without the stat
	OpSync            Op = 9  // answers once the member has applied all that the leader had
	OpPing            Op = 11 // keeps an idle session alive
	OpGetChildren2    Op = 12 // with a watch and the stat
	OpCheck           Op = 13 // the version of a node; meant for a multi
	OpMulti           Op = 14 // several writes, all or none
	OpCreate2         Op = 15 // create that answers with the stat, too
	OpReconfig        Op = 16 // always refused
	OpCheckWatches    Op = 17 // whether there is a watch
	OpRemoveWatches   Op = 18 // of this connection
	OpCreateContainer Op = 19 // a node that is deleted some time after its last child
	OpDeleteContainer Op = 20 // sent by servers to themselves; for clients see package zktest
	// a node that is deleted after that long without children and writes
	OpCreateTTL            Op = 21
	OpMultiRead            Op = 22  // several reads, each answered by itself
	OpAuth                 Op = 100 // does not keep the session alive
	OpSetWatches           Op = 101 // sent by clients that have reconnected
	OpSASL                 Op = 102 // does not keep the session alive; see zktest.WithSASLUsers
	OpGetEphemerals        Op = 103 // of this session, below a prefix
	OpGetAllChildrenNumber Op = 104 // all descendants
	OpSetWatches2          Op = 105 // setWatches with the persistent ones
	OpAddWatch             Op = 106 // persistent, or persistent and recursive
	OpWhoAmI               Op = 107 // the connection's identities
	OpConnect              Op = -10 // the handshake
	OpCloseSession         Op = -11 // ends the session
)

// String returns the operation's name in ZooKeeper's own spelling ("getChildren2"), or its number.
func (o Op) String() string {
	if name := opNames[o]; name != "" {
		return name
	}
	return "op(" + strconv.Itoa(int(o)) + ")"
}

// opNames has ZooKeeper's own spelling.
var opNames = map[Op]string{
	OpNotify:               "notify",
	OpConnect:              "connect",
	OpAuth:                 "auth",
	OpSASL:                 "sasl",
	OpPing:                 "ping",
	OpWhoAmI:               "whoAmI",
	OpCloseSession:         "closeSession",
	OpSync:                 "sync",
	OpDelete:               "delete",
	OpSetData:              "setData",
	OpSetACL:               "setACL",
	OpCheck:                "check",
	OpReconfig:             "reconfig",
	OpDeleteContainer:      "deleteContainer",
	OpMulti:                "multi",
	OpGetData:              "getData",
	OpGetChildren:          "getChildren",
	OpGetChildren2:         "getChildren2",
	OpGetACL:               "getACL",
	OpGetAllChildrenNumber: "getAllChildrenNumber",
	OpExists:               "exists",
	OpMultiRead:            "multiRead",
	OpGetEphemerals:        "getEphemerals",
	OpCheckWatches:         "checkWatches",
	OpRemoveWatches:        "removeWatches",
	OpAddWatch:             "addWatch",
	OpSetWatches:           "setWatches",
	OpSetWatches2:          "setWatches2",
	OpCreate:               "create",
	OpCreate2:              "create2",
	OpCreateContainer:      "createContainer",
	OpCreateTTL:            "createTTL",
}
