package main

import "strings"

// configuration is one set of parameters of a model.
type configuration struct {
	model      string // its file, without .pml
	name       string
	what       string // description for the table
	parameters string // of spin
	wrong      string // the defect of a mutant; "" for a configuration that must hold
}

// bounded reports whether the calls and faults of a small configuration are bounded, so that no run
// may return to an earlier state: it would go on forever. That search takes far longer than the
// one of all states.
func (c configuration) bounded() bool {
	return strings.Contains(c.parameters, rounds) || strings.Contains(c.parameters, ranks)
}

// endless reports whether a configuration's calls and faults go on without end, and somebody has to
// lead all the same.
func (c configuration) endless() bool { return strings.Contains(c.parameters, "-DLIVE=1") }

// promises are what the models assert, in the order in which they are matched against an
// assertion's text.
var promises = []struct{ assertion, name string }{
	{"headed", "exclusion"},
	{"(y==0)||", "rank"},
	{"!((tree[n]&before", "exclusion"},
	{"(tree[n]&(1<<me[c]))", "exclusion"},
	{"st[i]!=", "exclusion"},
	{"(tree[n]&before", "no lost wake-up"},
	{"pred[i]!=pred[c]", "no herd"},
	{"cur[i]", "nothing left"},
	{"tree[n]==0", "nothing left"},
	{"st[i]==0", "every run ends"},
	{"lease==0", "exclusion"},
	{"<=most[c]", "exclusion"},
	{"<=size[seen[c]]", "exclusion"},
	{"s<=2", "no herd"},
	{">size[n]", "no lost wake-up"},
}

// Sets of faults.
const (
	three       = "-DN=3 -DSLOTS=1 -DLAG=1 -DLOSE=0 "
	connections = three + "-DFORCE=0 -DKILL=0"
	force       = three + "-DCUT=0"
	laggards    = "-DN=3 -DSLOTS=1 -DLAG=2 -DLOSE=0 -DFORCE=0 -DKILL=0 -DGIVEUP=0"
	sessions    = "-DN=2 -DSLOTS=2 -DLAG=1 -DFORCE=0 -DKILL=0"
	expiry      = "-DN=2 -DSLOTS=2 -DLAG=1 -DCUT=0"
	ends        = "-DN=3 -DSLOTS=2 -DLAG=2 -DCALLS=3 -DFAULTS=2"
	rounds      = "-DCALLS=2 -DFAULTS=2"
	bounded     = "-DN=2 -DSLOTS=2 -DLAG=1 " + rounds
	two         = "-DN=2 -DSLOTS=1 -DLAG=1 -DLOSE=0"
	marks       = " -DMARKS=1"
	ranks       = "-DN=3 -DSLOTS=2 -DLAG=1 -DLOSE=0 -DCALLS=3 -DRANKS=1"
	loops       = "-DN=2 -DSLOTS=2 -DLAG=1 -DRANKS=1 -DLIVE=1 -DCUT=0 -DFORCE=0 -DKILL=0"
	pollers     = "-DN=3 -DSLOTS=2 -DLAG=2 -DRANKS=1 -DLIVE=1 -DCUT=0 -DFORCE=0 -DKILL=0 -DLOSE=0"
	permits     = "-DN=3 -DFIRST=3 -DR=1"
	lease       = "-DTIMEOUT=5 -DDRIFT=5"
)

var configurations = []configuration{
	{"queue", "two clients",
		"broken connections, cancelled calls, znodes and sessions removed by force", two, ""},
	{"queue", "connections", "three clients, broken connections, lost replies, cancelled calls",
		connections, ""},
	{"queue", "force", "three clients, cancelled calls, znodes and sessions removed by force",
		force, ""},
	{"queue", "laggards", "three clients, servers two transactions behind, broken connections",
		laggards, ""},
	{"queue", "sessions",
		"two clients that give sessions up and queue again, broken connections, cancelled calls",
		sessions, ""},
	{"queue", "expiry", "the same without broken connections, and with force", expiry, ""},
	{"queue", "ends",
		"three clients, three calls, every fault, two of them: every run ends, and nothing is left",
		ends, ""},
	{"queue", "rounds",
		"two clients, two calls, every fault, two of them: no run goes round in a cycle", bounded,
		""},
	{"queue", "ranks",
		"three candidates of two ranks, three calls, one fault: the highest leads next, and no run goes round in a cycle", ranks + " -DFAULTS=1", ""},
	{"queue", "crash loop",
		"a candidate, and one of higher rank that crashes and starts again without end: somebody leads", loops, ""},
	{"queue", "pollers",
		"a candidate, and two of higher rank that campaign and give up without end: somebody leads",
		pollers, ""},
	{"queue", "two clients, marks", "as above; a holder that has waited leaves with a mark",
		two + marks, ""},
	{"queue", "connections, marks", "", connections + marks, ""},
	{"queue", "force, marks", "", force + marks, ""},
	{"queue", "laggards, marks", "", laggards + marks, ""},
	{"queue", "sessions, marks", "", sessions + marks, ""},
	{"queue", "ends, marks", "", ends + marks, ""},
	{"queue", "rounds, marks", "", bounded + marks, ""},
	{"semaphore", "permits", "three contenders for two permits, of which one may give up",
		"-DN=3 -DR=0 -DLOWER=0", ""},
	{"semaphore", "four",
		"four contenders for one permit each; nobody who leaves wakes more than two",
		"-DN=4 -DMOST=1 -DFIRST=1 -DR=0 -DLOWER=0", ""},
	{"semaphore", "a change", "the same, and the size changes", "-DN=3 -DR=1", ""},
	{"semaphore", "a lower size", "the same with three permits at first", permits, ""},
	{"semaphore", "two changes", "with two changes", "-DN=3 -DR=2", ""},
	{"lease", "lease", "a timeout of five reports", lease, ""},
	{"lease", "longer lease", "of six", "-DTIMEOUT=6 -DDRIFT=6", ""},
}

var mutants = []configuration{
	{"queue", "watch on the head", "", connections + " -DMUTANT=1",
		"a waiter watches the first in line instead of its predecessor"},
	{"queue", "no second look", "", connections + " -DMUTANT=2",
		"a waiter holds when its predecessor goes, whoever else was before it"},
	{"queue", "own znode not watched", "", force + " -DMUTANT=3",
		"a waiter whose znode was removed holds when its turn would have come"},
	{"queue", "cancelled call stays", "", connections + " -DMUTANT=4",
		"a call that is given up leaves its znode"},
	{"queue", "no sync before the search", "", connections + " -DMUTANT=5",
		"a server that lags says that the znode was not made"},
	{"queue", "delete not repeated", "", connections + " -DMUTANT=6",
		"a deletion whose reply was lost is given up"},
	{"queue", "create forgotten", "", connections + " -DMUTANT=7",
		"a call that is given up during its create does not look for the znode"},
	{"queue", "order of two connections believed", "", two + " -DMUTANT=8",
		"a new connection's tale of what happened before it counts as its order"},
	{"queue", "watches not set again", "", connections + " -DMUTANT=11",
		"after a reconnection nobody is woken"},
	{"queue", "hangs up", "", bounded + " -DMUTANT=12",
		"a client leaves a connection that nobody has broken, again and again"},
	{"queue", "mark without a hold", "", connections + marks + " -DMUTANT=9",
		"a call that is given up leaves with the mark of a release"},
	{"queue", "held by the mark alone", "", connections + marks + " -DMUTANT=10",
		"the mark comes before the deletion, and its reader does not wait for that"},
	{"queue", "rank not seen", "", ranks + " -DFAULTS=0 -DMUTANT=13",
		"a candidate holds when its predecessor goes, without a list that shows who is behind it"},
	{"queue", "equals go before", "", ranks + " -DFAULTS=0 -DMUTANT=14",
		"a candidate steps aside for those of its own rank, whenever they came"},
	{"queue", "always aside, crash loop", "", loops + " -DMUTANT=15",
		"a candidate steps aside for each znode that a crash has left"},
	{"queue", "always aside, pollers", "", pollers + " -DMUTANT=15",
		"a candidate steps aside for all who campaign, whether they lead or not"},
	{"queue", "no sign", "", ranks + " -DFAULTS=0 -DMUTANT=16",
		"a term leaves no sign, so who stepped aside before it overtakes a later, higher one"},
	{"semaphore", "silent", "", permits + " -DMUTANT=1",
		"a contender that holds by its first list never says so"},
	{"semaphore", "never says", "", permits + " -DMUTANT=2",
		"a contender that holds after waiting does not say so"},
	{"semaphore", "no look behind the watch", "", permits + " -DMUTANT=3",
		"what happened before the watches were set is not seen"},
	{"semaphore", "old size", "", "-DN=3 -DR=1 -DMUTANT=4",
		"the size is not read again after the create"},
	{"semaphore", "change ignored", "", "-DN=3 -DR=1 -DMUTANT=5",
		"a contender is silent though those behind it may know another size"},
	{"semaphore", "largest unknown", "", permits + " -DMUTANT=6",
		"a lower size makes holders look like waiters"},
	{"semaphore", "no head", "", permits + " -DMUTANT=7",
		"the first waiter is woken by its predecessor only"},
	{"semaphore", "size before the list", "", permits + " -DMUTANT=8",
		"a contender holds by a size that may have changed since"},
	{"semaphore", "all watch the directory", "",
		"-DN=4 -DMOST=1 -DFIRST=1 -DR=0 -DLOWER=0 -DMUTANT=9",
		"every waiter watches the directory"},
	{"lease", "pings confirm", "", lease + " -DMUTANT=1",
		"a server that is cut off keeps a lease alive"},
	{"lease", "syncs confirm", "", lease + " -DMUTANT=2",
		"so does a leader that the others have left"},
	{"lease", "no slack", "", lease + " -DMUTANT=3",
		"a write confirms what the server has not reported yet"},
	{"lease", "counted from the reply", "", lease + " -DMUTANT=4",
		"a slow reply makes the lease longer than the leader's"},
	{"lease", "no drift", "", lease + " -DMUTANT=5", "a slow clock makes it longer"},
	{"lease", "handshake confirms", "", lease + " -DMUTANT=6",
		"a session that has ended is taken for one that was found again"},
	{"lease", "mark kept", "", lease + " -DMUTANT=7",
		"what one server has answered is confirmed through another one"},
}
