package zktest

import (
	"maps"

	"github.com/zklock/locker/zktest/fault"
)

// opError marks a failed part of a multi in its reply. It never arrives as a request.
const opError fault.Op = -1

// operation is all that the server needs to serve one type of request.
type operation struct {
	last string // its name in the four-letter word cons

	// decode reads the body, nil for a body that does not matter. It keeps null and invalid values:
	// serve answers them.
	decode func(r *request, d *decoder)

	// paths lists the paths that faults are selected by; nil stands for the one path of the
	// request.
	paths func(r *request) []string

	// takesNull says that serve answers a null path itself. For other operations it is a
	// marshalling error.
	takesNull bool

	// part says whether the operation may be part of a multi or of a multiRead.
	part partOf

	// leader says that the operation can't be answered without the leader; write, that it takes a
	// zxid as well; sessionless, that it concerns the connection alone, so that it neither needs a
	// session nor keeps one alive.
	leader, write, sessionless bool

	// perm is the permission required: for creates and deletes on the parent, for others on the
	// node.
	perm int32

	// serve carries the request out. It is nil for what clients cannot request.
	serve func(c *conn, r *request) answer

	// prepare checks a write against the leader's state. encode writes the body of its reply; nil
	// if it has none.
	prepare func(p *preparer, r *request) (mutation, fault.Code)
	encode  func(e *encoder, m *mutation, st *Stat)
}

// partOf says what an operation may be a part of.
type partOf uint8

const (
	partOfNone partOf = iota
	partOfMulti
	partOfMultiRead
)

// operations has an entry for each type of request, and for what only faults and counters know. It
// is filled by init, since the functions of a multi look its parts up in it.
var operations = map[fault.Op]*operation{}

func init() {
	for _, table := range []map[fault.Op]*operation{connectionOperations(), writes(), nodeReads(),
		otherReads()} {
		maps.Copy(operations, table)
	}
}

// connectionOperations concern a connection or its session, not the tree.
func connectionOperations() map[fault.Op]*operation {
	return map[fault.Op]*operation{
		fault.OpNotify:  {},
		fault.OpConnect: {last: "SESS", leader: true},
		fault.OpAuth:    {decode: decodeAuth, sessionless: true, serve: (*conn).authenticate},
		fault.OpSASL:    {decode: decodeSASL, sessionless: true, serve: (*conn).sasl},
		fault.OpPing:    {last: "PING", decode: decodePing, serve: reads((*conn).ping)},
		fault.OpWhoAmI:  {last: "HOMI", serve: reads((*conn).whoAmI)},
		fault.OpCloseSession: {last: "CLOS", write: true, leader: true,
			serve: (*conn).closeSession},
		fault.OpSync: {last: "SYNC", decode: decodePath, takesNull: true, leader: true,
			serve: reads((*conn).sync)},
	}
}

// writes go through the leader, and each takes a zxid, also when it fails.
func writes() map[fault.Op]*operation {
	create := operation{last: "CREA", decode: decodeCreate, part: partOfMulti, perm: PermCreate,
		prepare: (*preparer).create,
		encode:  encodePathAndStat}
	create1, create2, createContainer, createTTL := create, create, create, create
	create1.encode = encodePath
	table := map[fault.Op]*operation{
		fault.OpCreate:          &create1,
		fault.OpCreate2:         &create2,
		fault.OpCreateContainer: &createContainer,
		fault.OpCreateTTL:       &createTTL,
		fault.OpDelete: {last: "DELE", decode: decodeVersioned, part: partOfMulti, perm: PermDelete,
			prepare: (*preparer).delete},
		fault.OpSetData: {last: "SETD", decode: decodeSetData, takesNull: true, part: partOfMulti,
			perm:    PermWrite,
			prepare: (*preparer).setData, encode: encodeStat},
		fault.OpSetACL: {last: "SETA", decode: decodeSetACL, takesNull: true, perm: PermAdmin,
			prepare: (*preparer).setACL, encode: encodeStat},
		fault.OpCheck: {decode: decodeVersioned, takesNull: true, part: partOfMulti, perm: PermRead,
			prepare: (*preparer).check},
		fault.OpReconfig: {decode: decodeReconfig, takesNull: true, prepare: (*preparer).reconfig},
		fault.OpDeleteContainer: {decode: decodePath, takesNull: true,
			prepare: (*preparer).deleteContainer},
		fault.OpMulti: {last: "MULT", decode: decodeParts, paths: pathsOfParts,
			serve: (*conn).multi},
	}
	for _, o := range table {
		o.write, o.leader = true, true
		if o.serve == nil {
			o.serve = (*conn).writeOne
		}
	}
	return table
}

// nodeReads read a znode that exists, on the member that the client is connected to.
func nodeReads() map[fault.Op]*operation {
	return map[fault.Op]*operation{
		fault.OpGetData: {last: "GETD", decode: decodeWatched, part: partOfMultiRead,
			perm:  PermRead,
			serve: readsNode((*conn).getData)},
		fault.OpGetChildren: {last: "GETC", decode: decodeWatched, part: partOfMultiRead,
			perm:  PermRead,
			serve: readsNode((*conn).getChildren)},
		fault.OpGetChildren2: {last: "GETC", decode: decodeWatched, perm: PermRead,
			serve: readsNode((*conn).getChildren)},
		// To see an ACL, being allowed to change it is as good as being allowed to read the node.
		fault.OpGetACL: {last: "GETA", decode: decodePath, perm: PermRead | PermAdmin,
			serve: readsNode((*conn).getACL)},
		fault.OpGetAllChildrenNumber: {last: "GETACN", decode: decodePath, perm: PermRead,
			serve: readsNode((*conn).getAllChildrenNumber)},
	}
}

// otherReads change no znode either, and take a path of any form, of no node or of several.
func otherReads() map[fault.Op]*operation {
	return map[fault.Op]*operation{
		fault.OpExists: {last: "EXIS", decode: decodeWatched, perm: PermRead,
			serve: reads((*conn).exists)},
		fault.OpMultiRead: {last: "MLTR", decode: decodeParts, paths: pathsOfParts,
			serve: reads((*conn).multiRead)},
		fault.OpGetEphemerals: {last: "GETE", decode: decodePrefix,
			serve: reads((*conn).getEphemerals)},
		fault.OpCheckWatches: {last: "CHKW", decode: decodeFlagged, takesNull: true,
			serve: reads((*conn).checkWatches)},
		fault.OpRemoveWatches: {last: "REMW", decode: decodeFlagged, takesNull: true,
			serve: reads((*conn).removeWatches)},
		fault.OpAddWatch: {last: "ADDW", decode: decodeFlagged, takesNull: true,
			serve: reads((*conn).addWatch)},
		fault.OpSetWatches: {last: "SETW", decode: decodeWatchLists(listChild + 1), paths: pathsOfLists,
			serve: reads((*conn).setWatches)},
		fault.OpSetWatches2: {last: "STW2", decode: decodeWatchLists(watchLists), paths: pathsOfLists,
			serve: reads((*conn).setWatches)},
	}
}
