package zktest

import "maps"

// operations has an entry for each type of request, and for what only faults and counters know. It is filled by init,
// since the functions of a multi look its parts up in it.
var operations = map[Op]*operation{}

func init() {
	for _, table := range []map[Op]*operation{connectionOperations(), writes(), nodeReads(), otherReads()} {
		maps.Copy(operations, table)
	}
}

// connectionOperations concern a connection or its session, not the tree.
func connectionOperations() map[Op]*operation {
	return map[Op]*operation{
		OpNotify:       {name: "notify"},
		OpConnect:      {name: "connect", last: "SESS", leader: true},
		OpAuth:         {name: "auth", decode: decodeAuth, sessionless: true, serve: (*conn).authenticate},
		OpSASL:         {name: "sasl", decode: decodeSASL, sessionless: true, serve: (*conn).sasl},
		OpPing:         {name: "ping", last: "PING", decode: decodePing, serve: reads((*conn).ping)},
		OpWhoAmI:       {name: "whoAmI", last: "HOMI", serve: reads((*conn).whoAmI)},
		OpCloseSession: {name: "closeSession", last: "CLOS", write: true, leader: true, serve: (*conn).closeSession},
		OpSync: {name: "sync", last: "SYNC", decode: decodePath, takesNull: true, leader: true,
			serve: reads((*conn).sync)},
	}
}

// writes go through the leader, and each takes a zxid, also when it fails.
func writes() map[Op]*operation {
	create := operation{last: "CREA", decode: decodeCreate, part: partOfMulti, perm: PermCreate, prepare: (*preparer).create,
		encode: encodePathAndStat}
	create1, create2, createContainer, createTTL := create, create, create, create
	create1.name, create1.encode = "create", encodePath
	create2.name, createContainer.name, createTTL.name = "create2", "createContainer", "createTTL"
	table := map[Op]*operation{
		OpCreate:          &create1,
		OpCreate2:         &create2,
		OpCreateContainer: &createContainer,
		OpCreateTTL:       &createTTL,
		OpDelete: {name: "delete", last: "DELE", decode: decodeVersioned, part: partOfMulti, perm: PermDelete,
			prepare: (*preparer).delete},
		OpSetData: {name: "setData", last: "SETD", decode: decodeSetData, takesNull: true, part: partOfMulti, perm: PermWrite,
			prepare: (*preparer).setData, encode: encodeStat},
		OpSetACL: {name: "setACL", last: "SETA", decode: decodeSetACL, takesNull: true, perm: PermAdmin,
			prepare: (*preparer).setACL, encode: encodeStat},
		OpCheck: {name: "check", decode: decodeVersioned, takesNull: true, part: partOfMulti, perm: PermRead,
			prepare: (*preparer).check},
		OpReconfig: {name: "reconfig", decode: decodeReconfig, takesNull: true, prepare: (*preparer).reconfig},
		OpDeleteContainer: {name: "deleteContainer", decode: decodePath, takesNull: true,
			prepare: (*preparer).deleteContainer},
		OpMulti: {name: "multi", last: "MULT", decode: decodeParts, paths: pathsOfParts, serve: (*conn).multi},
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
func nodeReads() map[Op]*operation {
	return map[Op]*operation{
		OpGetData: {name: "getData", last: "GETD", decode: decodeWatched, part: partOfMultiRead, perm: PermRead,
			serve: readsNode((*conn).getData)},
		OpGetChildren: {name: "getChildren", last: "GETC", decode: decodeWatched, part: partOfMultiRead, perm: PermRead,
			serve: readsNode((*conn).getChildren)},
		OpGetChildren2: {name: "getChildren2", last: "GETC", decode: decodeWatched, perm: PermRead,
			serve: readsNode((*conn).getChildren)},
		// To see an ACL, being allowed to change it is as good as being allowed to read the node.
		OpGetACL: {name: "getACL", last: "GETA", decode: decodePath, perm: PermRead | PermAdmin,
			serve: readsNode((*conn).getACL)},
		OpGetAllChildrenNumber: {name: "getAllChildrenNumber", last: "GETACN", decode: decodePath, perm: PermRead,
			serve: readsNode((*conn).getAllChildrenNumber)},
	}
}

// otherReads change no znode either, and take a path of any form, of no node or of several.
func otherReads() map[Op]*operation {
	return map[Op]*operation{
		OpExists: {name: "exists", last: "EXIS", decode: decodeWatched, perm: PermRead, serve: reads((*conn).exists)},
		OpMultiRead: {name: "multiRead", last: "MLTR", decode: decodeParts, paths: pathsOfParts,
			serve: reads((*conn).multiRead)},
		OpGetEphemerals: {name: "getEphemerals", last: "GETE", decode: decodePrefix, serve: reads((*conn).getEphemerals)},
		OpCheckWatches: {name: "checkWatches", last: "CHKW", decode: decodeFlagged, takesNull: true,
			serve: reads((*conn).findWatches)},
		OpRemoveWatches: {name: "removeWatches", last: "REMW", decode: decodeFlagged, takesNull: true,
			serve: reads((*conn).findWatches)},
		OpAddWatch: {name: "addWatch", last: "ADDW", decode: decodeFlagged, takesNull: true,
			serve: reads((*conn).addWatch)},
		OpSetWatches: {name: "setWatches", last: "SETW", decode: decodeWatchLists(3), paths: pathsOfLists,
			serve: reads((*conn).setWatches)},
		OpSetWatches2: {name: "setWatches2", last: "STW2", decode: decodeWatchLists(5), paths: pathsOfLists,
			serve: reads((*conn).setWatches)},
	}
}
