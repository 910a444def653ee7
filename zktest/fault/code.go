package fault

import "strconv"

// Code is the result of an operation, as its number on the wire.
type Code int32

// Code 0 is success. Codes above -100 mean that the request or the server is at fault, those from
// -100 down that the operation could not be done. Without a fault, the server sends only the Codes
// of this list.

// The results that this server gives, and a few that only faults produce. The names follow
// ZooKeeper's own.
const (
	CodeOK                   Code = 0  // carried out
	CodeRuntimeInconsistency Code = -2 // a part of a multi after the one that failed
	// what SendFrame returns; on real clients only the client itself reports it
	CodeConnectionLoss Code = -4
	// the request could not be read, or its handler could not take it
	CodeMarshallingError        Code = -5
	CodeUnimplemented           Code = -6   // no such operation; the connection ends
	CodeOperationTimeout        Code = -7   // only by Answer
	CodeBadArguments            Code = -8   // an impossible path, mode or TTL
	CodeUnknownSession          Code = -12  // Expire returns it for a session that is over
	CodeNoNode                  Code = -101 // also for a missing parent
	CodeNoAuth                  Code = -102 // the ACL grants it to none of the client's identities
	CodeBadVersion              Code = -103 // the node's version is not the request's
	CodeNoChildrenForEphemerals Code = -108 // the parent would be an ephemeral
	CodeNodeExists              Code = -110 // also for the name that a sequence number makes
	CodeNotEmpty                Code = -111 // a node with children is not deleted
	CodeSessionExpired          Code = -112 // only by Answer: an expired session gets no answers
	// no entry, an unknown scheme, an id of the wrong form, auth without any
	CodeInvalidACL Code = -114
	CodeAuthFailed Code = -115 // the connection ends
	// only by Answer: leftover connections are closed without an answer
	CodeSessionMoved     Code = -118
	CodeNoWatcher        Code = -121 // there is no such watch to remove or to find
	CodeReconfigDisabled Code = -123 // what every reconfig gets
)

var codeNames = map[Code]string{
	CodeOK: "ok", CodeRuntimeInconsistency: "runtime inconsistency",
	CodeConnectionLoss:   "connection loss",
	CodeMarshallingError: "marshalling error", CodeUnimplemented: "unimplemented",
	CodeOperationTimeout: "operation timeout", CodeBadArguments: "bad arguments",
	CodeUnknownSession: "unknown session", CodeNoNode: "no node", CodeNoAuth: "no auth",
	CodeBadVersion: "bad version", CodeNoChildrenForEphemerals: "no children for ephemerals",
	CodeNodeExists: "node exists", CodeNotEmpty: "not empty", CodeSessionExpired: "session expired",
	CodeInvalidACL: "invalid ACL", CodeAuthFailed: "auth failed", CodeSessionMoved: "session moved",
	CodeNoWatcher: "no watcher", CodeReconfigDisabled: "reconfig disabled",
}

// Error makes a Code other than CodeOK usable as an error; the admin calls of a Server return it
// wrapped.
func (c Code) Error() string {
	if n, ok := codeNames[c]; ok {
		return "zktest: " + n
	}
	return "zktest: code " + strconv.Itoa(int(c))
}
