package zktest

import "strconv"

// Op is the type of a request, as its number on the wire. Faults and counters are selected by it.
type Op int32

// The operations a client can ask for, and two pseudo operations that only faults and counters know:
// OpNotify stands for a notification on its way to a client, OpConnect for the handshake.
const (
	OpNotify               Op = 0   // an event on its way to a client
	OpCreate               Op = 1   // persistent, ephemeral or sequential, by its flags; answers with the path
	OpDelete               Op = 2   // if it has no children
	OpExists               Op = 3   // with a watch, also for a node that is not there yet
	OpGetData              Op = 4   // with a watch
	OpSetData              Op = 5   // answers with the stat
	OpGetACL               Op = 6   // digests masked for who may not administer
	OpSetACL               Op = 7   // has a version of its own
	OpGetChildren          Op = 8   // with a watch; without the stat
	OpSync                 Op = 9   // answers once the member knows all that the leader knew
	OpPing                 Op = 11  // what keeps an idle session alive
	OpGetChildren2         Op = 12  // with a watch and the stat
	OpCheck                Op = 13  // the version of a node; meant for a multi
	OpMulti                Op = 14  // several writes, all or none
	OpCreate2              Op = 15  // as create, and answers with the stat, too
	OpReconfig             Op = 16  // always refused
	OpCheckWatches         Op = 17  // whether there is a watch
	OpRemoveWatches        Op = 18  // of this connection
	OpCreateContainer      Op = 19  // goes some time after its last child
	OpDeleteContainer      Op = 20  // the server's own; refused to clients
	OpCreateTTL            Op = 21  // goes when it was idle and childless for so long
	OpMultiRead            Op = 22  // several reads, each for itself
	OpAuth                 Op = 100 // no sign of life
	OpSetWatches           Op = 101 // what clients send when they come back
	OpSASL                 Op = 102 // no sign of life; answered with nothing
	OpGetEphemerals        Op = 103 // of this session, below a prefix
	OpGetAllChildrenNumber Op = 104 // all descendants
	OpSetWatches2          Op = 105 // as setWatches, with the persistent ones
	OpAddWatch             Op = 106 // persistent, or persistent and recursive
	OpWhoAmI               Op = 107 // the connection's identities
	OpConnect              Op = -10 // the handshake
	OpCloseSession         Op = -11 // the client's goodbye

	// opError marks a failed part of a multi in its reply. It never arrives as a request.
	opError Op = -1
)

var opNames = map[Op]string{
	OpNotify: "notify", OpCreate: "create", OpDelete: "delete", OpExists: "exists", OpGetData: "getData",
	OpSetData: "setData", OpGetACL: "getACL", OpSetACL: "setACL", OpGetChildren: "getChildren", OpSync: "sync",
	OpPing: "ping", OpGetChildren2: "getChildren2", OpCheck: "check", OpMulti: "multi", OpCreate2: "create2",
	OpReconfig: "reconfig", OpCheckWatches: "checkWatches", OpRemoveWatches: "removeWatches",
	OpCreateContainer: "createContainer", OpDeleteContainer: "deleteContainer", OpCreateTTL: "createTTL",
	OpMultiRead: "multiRead", OpAuth: "auth", OpSetWatches: "setWatches", OpSASL: "sasl",
	OpGetEphemerals: "getEphemerals", OpGetAllChildrenNumber: "getAllChildrenNumber",
	OpSetWatches2: "setWatches2", OpAddWatch: "addWatch", OpWhoAmI: "whoAmI", OpConnect: "connect",
	OpCloseSession: "closeSession",
}

// String returns the operation's name in ZooKeeper's own spelling ("getChildren2"), or its number.
func (o Op) String() string {
	if n, ok := opNames[o]; ok {
		return n
	}
	return "op(" + strconv.Itoa(int(o)) + ")"
}

// served says whether a request of this type gets past the door. Everything else is answered "unimplemented"
// and costs the client its connection. So is a check outside of a multi, except by 3.8, which trips over it.
func (o Op) served(v Version) bool {
	switch o { // known, but no request, or none that gets here
	case OpNotify, OpConnect, OpAuth, OpSASL:
		return false
	case OpCheck:
		return v == Version38
	}
	_, known := opNames[o]
	return known
}

// writes says whether the operation goes through the leader and takes a zxid, also when it fails.
func (o Op) writes() bool {
	switch o {
	case OpCreate, OpCreate2, OpCreateContainer, OpCreateTTL, OpDelete, OpDeleteContainer, OpSetData, OpSetACL,
		OpCheck, OpMulti, OpReconfig, OpCloseSession:
		return true
	}
	return false
}

// needsLeader says whether a member that is cut off from its leader has to let this one wait.
func (o Op) needsLeader() bool { return o.writes() || o == OpSync || o == OpConnect }
