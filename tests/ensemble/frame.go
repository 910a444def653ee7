package ensemble

import (
	"encoding/binary"
	"fmt"
)

// Opcodes of ZooKeeper's client protocol (org.apache.zookeeper.ZooDefs.OpCode).
const (
	OpCreate          int32 = 1
	OpDelete          int32 = 2
	OpExists          int32 = 3
	OpGetData         int32 = 4
	OpSetData         int32 = 5
	OpGetACL          int32 = 6
	OpSetACL          int32 = 7
	OpGetChildren     int32 = 8
	OpSync            int32 = 9
	OpPing            int32 = 11
	OpGetChildren2    int32 = 12
	OpCheck           int32 = 13
	OpMulti           int32 = 14
	OpCreate2         int32 = 15
	OpReconfig        int32 = 16
	OpCheckWatches    int32 = 17
	OpRemoveWatches   int32 = 18
	OpCreateContainer int32 = 19
	OpCreateTTL       int32 = 21
	OpMultiRead       int32 = 22
	OpAuth            int32 = 100
	OpSetWatches      int32 = 101
	OpSASL            int32 = 102
	OpGetEphemerals   int32 = 103
	OpSetWatches2     int32 = 105
	OpAddWatch        int32 = 106
	OpWhoAmI          int32 = 107
	OpCloseSession    int32 = -11
)

const (
	xidNotification int32 = -1
	xidPing         int32 = -2
)

var opNames = map[int32]string{
	OpCreate: "create", OpDelete: "delete", OpExists: "exists", OpGetData: "getData", OpSetData: "setData",
	OpGetACL: "getACL", OpSetACL: "setACL", OpGetChildren: "getChildren", OpSync: "sync", OpPing: "ping",
	OpGetChildren2: "getChildren2", OpCheck: "check", OpMulti: "multi", OpCreate2: "create2", OpReconfig: "reconfig",
	OpCheckWatches: "checkWatches", OpRemoveWatches: "removeWatches", OpCreateContainer: "createContainer",
	OpCreateTTL: "createTTL", OpMultiRead: "multiRead", OpAuth: "auth", OpSetWatches: "setWatches", OpSASL: "sasl",
	OpGetEphemerals: "getEphemerals", OpSetWatches2: "setWatches2", OpAddWatch: "addWatch", OpWhoAmI: "whoAmI",
	OpCloseSession: "closeSession",
}

// OpName returns ZooKeeper's name of an opcode, or the number of an unknown one.
func OpName(op int32) string {
	if name, ok := opNames[op]; ok {
		return name
	}
	return fmt.Sprintf("op(%d)", op)
}

// hasPath says whether a request begins with its path.
func hasPath(op int32) bool {
	switch op {
	case OpMulti, OpMultiRead, OpReconfig, OpAuth, OpSASL, OpSetWatches, OpSetWatches2, OpWhoAmI, OpCloseSession:
		return false
	}
	return opNames[op] != ""
}

// longestFrame is far above what ZooKeeper sends; a longer length means another protocol ("srvr" is 1.9 GB).
const longestFrame = 64 << 20

// stream cuts one direction of a connection into frames: a length of 4 bytes, then that many bytes.
type stream struct {
	buf    []byte
	frames int // complete so far
	alien  bool
}

// feed takes the next bytes and calls emit for every frame that they complete, without its length. emit must not keep
// the slice.
func (s *stream) feed(b []byte, emit func(frame []byte)) {
	if s.alien {
		return
	}
	s.buf = append(s.buf, b...)
	rest := s.buf
	for len(rest) >= 4 {
		size := binary.BigEndian.Uint32(rest)
		if size > longestFrame {
			s.alien, s.buf = true, nil
			return
		}
		if len(rest)-4 < int(size) {
			break
		}
		s.frames++
		emit(rest[4 : 4+size])
		rest = rest[4+size:]
	}
	s.buf = append(s.buf[:0], rest...)
}

// lastString returns the last element of the vector of strings at the beginning of b, or "" when there is none.
func lastString(b []byte) (s string) {
	if len(b) < 4 {
		return ""
	}
	n := int32(binary.BigEndian.Uint32(b))
	b = b[4:]
	for ; n > 0 && len(b) >= 4; n-- {
		s = ustring(b)
		b = b[min(4+len(s), len(b)):]
	}
	return s
}

// ustring returns the string at the beginning of b, in ZooKeeper's encoding, or "" when there is none.
func ustring(b []byte) string {
	if len(b) < 4 {
		return ""
	}
	size := int32(binary.BigEndian.Uint32(b))
	if size < 0 || int(size) > len(b)-4 {
		return ""
	}
	return string(b[4 : 4+size])
}
