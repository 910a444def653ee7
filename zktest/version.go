package zktest

import "github.com/zklock/locker/zktest/fault"

// Version is a line of releases whose behaviour the server can reproduce.
type Version string

// The versions of ZooKeeper that the server speaks: its behaviour is compared with real servers of
// both.
const (
	Version38 Version = "3.8" // as Debian packages 3.8.0: events need READ, exists does not
	Version39 Version = "3.9" // 3.9.2 and later: exists needs READ, and events carry their zxid
)

// dialect is the behaviour of a version where the versions differ.
type dialect struct {
	release string // the release as the four-letter words report it

	// existsNeedsRead refuses exists of a znode that the client may not read.
	existsNeedsRead bool

	// zxidInEvents sends the zxid of the change with its events.
	zxidInEvents bool

	// oneModePerWatch keeps one watch per connection, path and table, in the mode of the latest
	// call. Without it, plain, persistent and recursive watches coexist, and checkWatches and
	// removeWatches distinguish them.
	oneModePerWatch bool

	// checkAlone serves a check outside of a multi, and sends no reply if it succeeds.
	checkAlone bool

	// modeDecidesPart says that the mode alone decides which create a part of a multi is, and so
	// its answer.
	modeDecidesPart bool

	// zxidBeforeBody says that writes take their zxid before their body is read. Otherwise only a
	// multi does.
	zxidBeforeBody bool

	// deletesContainers carries out a client's deleteContainer, without checking a permission.
	deletesContainers bool
}

var dialects = map[Version]*dialect{
	Version38: {
		release:         "3.8.0",
		oneModePerWatch: true,
		checkAlone:      true,
		modeDecidesPart: true,
		zxidBeforeBody:  true,
	},
	Version39: {
		release:           "3.9.3",
		existsNeedsRead:   true,
		zxidInEvents:      true,
		deletesContainers: true,
	},
}

// serves reports whether the version knows the type of a request. It answers any other one with
// "unimplemented", which ends the client's connection.
func (d *dialect) serves(r *request) bool {
	return r.serve != nil && (r.op != fault.OpCheck || d.checkAlone)
}
