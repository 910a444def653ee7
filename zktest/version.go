package zktest

import (
	"slices"
	"time"
)

// Version is a line of releases whose behaviour the server can reproduce.
type Version string

// The versions of ZooKeeper that the server speaks: its behaviour is compared with real servers of both.
const (
	Version38 Version = "3.8" // as Debian packages 3.8.0: events need READ, exists does not
	Version39 Version = "3.9" // 3.9.2 and later: exists needs READ, and events carry their zxid
)

// The versions of ClickHouse Keeper that the server speaks. They follow Keeper's published sources
// (src/Server/KeeperTCPHandler.cpp, src/Coordination/KeeperStorage.cpp, src/Common/ZooKeeper/ZooKeeperConstants.cpp and
// ZooKeeperCommon.cpp), and have not been compared with a running one. They differ from ZooKeeper in this:
//
//   - A session lasts as long as its connection: a handshake that names one opens a new one all the same, whose
//     password is all zeros. The old one stays until its timeout.
//   - Keeper22 knows create, delete, exists, getData, setData, getACL, setACL, getChildren, getChildren2, sync, ping,
//     check, multi, auth and closeSession. Keeper26 also knows create2, createContainer, createTTL, multiRead,
//     checkWatches, removeWatches, addWatch and setWatches. What a version does not know, or can't decode, ends the
//     connection without a reply. So does closeSession.
//   - Pings go through the leader, as writes do. A follower's answers to reads don't keep a session alive.
//   - Events are sent to clients whatever they may read, and without a zxid; a client that watches a node and its
//     children gets its deletion twice.
//   - The parent's pzxid does not move with deletions, and its cversion moves with each setData.
//   - Entries of the scheme "world" for anyone are dropped from access lists, and an empty list lets everybody do
//     everything. There is no scheme "ip". Keeper22 refuses a multi as a whole when a permission is missing.
//   - Sessions are numbered from 1, end at half seconds, and last between 10 and 100 s by default.
const (
	Keeper22 Version = "keeper-22" // the operations of 2022
	Keeper26 Version = "keeper-26" // the operations of 2026
)

// dialect is the behaviour of a version where the versions differ.
type dialect struct {
	release string // the release as the four-letter words report it

	// tick, minTimeout and maxTimeout are the defaults; a timeout of 0 follows from the tick.
	tick, minTimeout, maxTimeout time.Duration

	// existsNeedsRead refuses exists of a znode that the client may not read.
	existsNeedsRead bool

	// zxidInEvents sends the zxid of the change with its events.
	zxidInEvents bool

	// oneModePerWatch keeps one watch per connection, path and table, in the mode of the latest call. Without it,
	// plain, persistent and recursive watches coexist, and checkWatches and removeWatches distinguish them.
	oneModePerWatch bool

	// checkAlone serves a check outside of a multi, and sends no reply if it succeeds.
	checkAlone bool

	// modeDecidesPart says that the mode alone decides which create a part of a multi is, and so its answer.
	modeDecidesPart bool

	// zxidBeforeBody says that writes take their zxid before their body is read. Otherwise only a multi does.
	zxidBeforeBody bool

	// deletesContainers carries out a client's deleteContainer, without checking a permission.
	deletesContainers bool

	// keeper makes the server a ClickHouse Keeper: see Keeper22.
	keeper bool

	// multiAsksFirst refuses a multi as a whole when a permission is missing for one of its parts.
	multiAsksFirst bool

	// operations are those that are served; nil means all but a check outside of a multi.
	operations []Op
}

// keeperOperations are those that all Keepers serve.
var keeperOperations = []Op{OpCreate, OpDelete, OpExists, OpGetData, OpSetData, OpGetACL, OpSetACL, OpGetChildren, OpSync,
	OpPing, OpGetChildren2, OpCheck, OpMulti, OpAuth, OpCloseSession}

// newKeeper completes the dialect of a Keeper that serves more than others, with the defaults of its settings
// dead_session_check_period_ms, min_session_timeout_ms and session_timeout_ms.
func newKeeper(d dialect, more ...Op) *dialect {
	d.keeper, d.operations = true, slices.Concat(keeperOperations, more)
	d.tick, d.minTimeout, d.maxTimeout = 500*time.Millisecond, 10*time.Second, 100*time.Second
	return &d
}

var dialects = map[Version]*dialect{
	Version38: {
		release:         "3.8.0",
		tick:            2 * time.Second,
		oneModePerWatch: true,
		checkAlone:      true,
		modeDecidesPart: true,
		zxidBeforeBody:  true,
	},
	Version39: {
		release:           "3.9.3",
		tick:              2 * time.Second,
		existsNeedsRead:   true,
		zxidInEvents:      true,
		deletesContainers: true,
	},
	Keeper22: newKeeper(dialect{release: "v22.11.1.1", multiAsksFirst: true}),
	Keeper26: newKeeper(dialect{release: "v26.6.1.1"}, OpCreate2, OpCreateContainer, OpCreateTTL, OpMultiRead, OpCheckWatches,
		OpRemoveWatches, OpAddWatch, OpSetWatches, OpSetWatches2),
}

// needsLeader says whether a request can't be answered without the leader.
func (d *dialect) needsLeader(r *request) bool {
	return r.leader || d.keeper && (r.op == OpPing || r.op == OpAuth)
}

// serves says whether a request of this type is carried out. Others are answered "unimplemented", which ends the
// client's connection.
func (d *dialect) serves(r *request) bool {
	if d.operations == nil {
		return r.serve != nil && (r.op != OpCheck || d.checkAlone)
	}
	// Unlike ZooKeeper, Keeper also checks the parts of a multi before it does anything.
	unknown := func(part request) bool { return !slices.Contains(d.operations, part.op) }
	return !unknown(*r) && !slices.ContainsFunc(r.parts, unknown)
}
