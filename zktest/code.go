package zktest

import "strconv"

// Code is the result of an operation, as its number on the wire.
type Code int32

// Code 0 is success. Codes above -100 say that the request or the server is at fault, those from -100 on that the
// operation could not be done. Only a Code of this list ever leaves the server, unless a fault says otherwise.

// The results this server gives, and a few that only faults give. The names follow ZooKeeper's own.
const (
	CodeOK                      Code = 0    // carried out
	CodeRuntimeInconsistency    Code = -2   // a part of a multi behind the one that failed
	CodeConnectionLoss          Code = -4   // what SendFrame returns; clients say it to themselves
	CodeMarshallingError        Code = -5   // the request could not be read, or its handler could not take it
	CodeUnimplemented           Code = -6   // no such operation; the connection ends
	CodeOperationTimeout        Code = -7   // only by Answer
	CodeBadArguments            Code = -8   // a path, mode or TTL that cannot be
	CodeUnknownSession          Code = -12  // Expire returns it for a session that is over
	CodeNoNode                  Code = -101 // also for a parent that is not there
	CodeNoAuth                  Code = -102 // the ACL does not allow it to any of the client's identities
	CodeBadVersion              Code = -103 // the node has another version than the request names
	CodeNoChildrenForEphemerals Code = -108 // the parent would be an ephemeral
	CodeNodeExists              Code = -110 // also for the name that a sequence number makes
	CodeNotEmpty                Code = -111 // a node with children is not deleted
	CodeSessionExpired          Code = -112 // only by Answer: a session that is over gets no answers
	CodeInvalidACL              Code = -114 // no entry, an unknown scheme, an id of the wrong form, auth without any
	CodeAuthFailed              Code = -115 // the connection ends
	CodeSessionMoved            Code = -118 // only by Answer: leftover connections are closed without one
	CodeNoWatcher               Code = -121 // there was no such watch to remove or to find
	CodeReconfigDisabled        Code = -123 // what every reconfig gets
)

var codeNames = map[Code]string{
	CodeOK: "ok", CodeRuntimeInconsistency: "runtime inconsistency", CodeConnectionLoss: "connection loss",
	CodeMarshallingError: "marshalling error", CodeUnimplemented: "unimplemented",
	CodeOperationTimeout: "operation timeout", CodeBadArguments: "bad arguments",
	CodeUnknownSession: "unknown session", CodeNoNode: "no node", CodeNoAuth: "no auth",
	CodeBadVersion: "bad version", CodeNoChildrenForEphemerals: "no children for ephemerals",
	CodeNodeExists: "node exists", CodeNotEmpty: "not empty", CodeSessionExpired: "session expired",
	CodeInvalidACL: "invalid ACL", CodeAuthFailed: "auth failed", CodeSessionMoved: "session moved",
	CodeNoWatcher: "no watcher", CodeReconfigDisabled: "reconfig disabled",
}

// Error makes a Code other than CodeOK usable as an error; the admin calls of a Server return it wrapped.
func (c Code) Error() string {
	if n, ok := codeNames[c]; ok {
		return "zktest: " + n
	}
	return "zktest: code " + strconv.Itoa(int(c))
}
