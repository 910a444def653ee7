package main

// edit replaces one text, which must stand exactly once in the file.
type edit struct{ old, new string }

// mutant is one way to break the code.
type mutant struct {
	name  string // what it does
	wrong string // what is wrong with it, for those who read the table
	file  string
	edits []edit
	tests []string // arguments of go test, one run each, until one of them fails
}

// Runs that are expected to notice.
var (
	inRecipe    = "./recipe"
	inSession   = "./session"
	inScenarios = "./zklock -run=Scenario"
	inLocks     = "./zklock"
	inHandshake = "./session -run=Handshake|Hostile|Garbled|Peer|Frame|Order"
	inLease     = "./session -run=Lease|Acknowledgement|Retain|Idle|Heartbeat"
	onServers   = "./zklock -run=Holder|Lease|Wire|Crash|Killed"
)

var mutants = []mutant{
	{"lease from plain pings", "a follower that is cut off from the leader keeps a lease alive", "session/lease.go",
		[]edit{{"	if leader {\n		n := 0", "	if leader = true; leader {\n		n := 0"}}, []string{inLease, inScenarios, onServers}},
	{"lease confirmed without slack", "an acknowledgement counts before the follower can have reported it", "session/lease.go",
		[]edit{{"l.marks[n].ready.After(sent)", "l.marks[n].first.After(sent)"}}, []string{inLease, inScenarios}},
	{"lease from the reply's arrival", "a slow reply makes the lease longer than the leader's", "session/connevents.go",
		[]edit{{"s.lease.ack(r.sent, at, leader)", "s.lease.ack(at, at, leader)"}}, []string{inLease, inSession, inScenarios}},
	{"arrival of an earlier reply", "an acknowledgement is confirmed before the follower can have reported it", "session/connread.go",
		[]edit{{"if had < len(head)+size || c.read.IsZero() {", "if had < 0 || c.read.IsZero() {"}}, []string{inLease}},
	{"lease from an answer to credentials", "authentication does not touch the session at the server", "session/connevents.go",
		[]edit{{"if r.op == opAuth || r.op == opSASL ||", "if r.op == opSASL ||"}}, []string{"./session -run=Auth|Credential", inSession}},
	{"lease from an answer to SASL", "a SASL negotiation does not touch the session at the server", "session/connevents.go",
		[]edit{{"if r.op == opAuth || r.op == opSASL ||", "if r.op == opAuth ||"}}, []string{"./session -run=SASL"}},
	{"hold outlives its lease", "the end of the lease ends nothing", "session/deadline.go",
		[]edit{{"return int64(now.Sub(origin)) >= d.at.Load()", "return false"}}, []string{inLease, inScenarios}},
	{"no drift, no lead", "the hold ends at the instant at which the ensemble may give the lock away", "session/lease.go",
		[]edit{{"return l.before(driftPart, leadPart)", "return l.confirmed"}}, []string{inLease}},
	{"end of the lease behind a mutex", "whatever holds the session's mutex keeps a hold alive", "session/state.go",
		[]edit{{"	s.cut(cause)\n	s.ending", "	s.mu.Lock()\n	s.cut(cause)\n	s.mu.Unlock()\n	s.ending"}}, []string{inLease, inSession}},
	{"context that does not look at the clock", "after a stop of the process a worker goes on with a lock that is lost", "zklock/leasecontext.go",
		[]edit{{"	_ = c.s.Alive() // its", "	// its"}}, []string{"./zklock -run=Scenario20|Scenario63"}},
	{"refusal inside a multi not read", "a heartbeat that was refused prolongs the lease", "session/verdict.go",
		[]edit{{"if op != opMulti || header != codeOK {", "if op != opMulti || header <= codeOK {"}}, []string{"./session -run=Multi|Heartbeat"}},
	{"close that frees the lock", "the next holder begins before the time that was promised", "session/session.go",
		[]edit{{"asked := errors.Is(s.Err(), ErrClosed)", "asked := true"}}, []string{"./session -run=Scenario58|Promised"}},
	{"re-attachment without an answer not counted", "a server with a lower limit ends the session before the lease is over", "session/lease.go",
		[]edit{{"{ l.asking = sent }", "{}"}}, []string{inLease}},
	{"expired session goes on", "the driver's next session is taken for the one that is over", "session/connevents.go",
		[]edit{{"	case r.id == 0 && s.id != 0:\n		s.mu.Unlock()\n		s.end(ErrExpired)\n		return ErrExpired\n", "	case r.id == 0 && s.id != 0:\n		s.mu.Unlock()\n		return ErrGarbled\n"}},
		[]string{"./session -run=Expir|Over", inScenarios}},
	{"write repeated after a lost reply", "a create is made twice", "session/request.go",
		[]edit{{"case errors.Is(r.err, ErrNotSent), r.repeatable && !r.unreadable:", "case !r.unreadable:"}}, []string{"./session -run=Unknown|Lost|Outcome", inScenarios}},
	{"older server accepted", "a server that lags behind what was seen is taken", "session/conn.go",
		[]edit{{"binary.BigEndian.PutUint64(frame[8:], uint64(zxid))", "_ = zxid"}}, []string{"./session -run=Older|Lag", inScenarios}},
	{"reply taken for any request", "one request gets another one's answer", "session/connread.go",
		[]edit{{"	if r == nil || r.xid != xid {", "	if r == nil {"}}, []string{inHandshake, inSession}},
	{"silent server kept", "a hung server is waited for until the session is over", "session/heartbeat.go",
		[]edit{{"limit := s.patience()", "limit := 100 * s.patience()"}}, []string{"./session -run=Silent|Hung|Patience|Hang", inSession}},
	{"watches not set again", "after a reconnection nobody is woken", "session/watchtable.go",
		[]edit{{"ws.setWatchesLocked(again, zxid", "ws.setWatchesLocked(again[:0], zxid"}}, []string{"./session -run=Watch", inScenarios}},
	{"watches left at the server", "every cancelled wait costs the server memory for ever", "session/watchtable.go",
		[]edit{{"	case w.t.armed:\n		ws.remove(w.t)\n", "	case w.t.armed:\n		ws.dropLocked(w.t)\n"}}, []string{"./session -run=Watch", inScenarios}},

	{"locks and waits take no room", "a session's end is longer than servers can read", "session/ephemerals.go",
		[]edit{{"	case EphemeralSequential:\n		return", "	case -1:\n		return"}}, []string{"./session -run=Room|Counted"}},
	{"room of a lost create given back", "a session grows beyond what servers can read when it ends", "session/ephemerals.go",
		[]edit{{"	if r.mayHaveLeft() {", "	if false {"}}, []string{"./session -run=Room|Counted"}},

	{"no owner check", "a znode of a session that is over is taken for one's own", "recipe/entry.go",
		[]edit{{"case n.Err != nil || n.Stat.EphemeralOwner != e.s.ID():", "case n.Err != nil:"}}, []string{inRecipe, inScenarios}},
	{"no sync before the search", "a follower that lags behind says that the znode was not made", "recipe/entry.go",
		[]edit{{"	if err := e.s.Sync(ctx, e.q.Dir); err != nil {\n		return 0, err\n	}\n	names, _, err := e.s.List", "	names, _, err := e.s.List"}},
		[]string{inRecipe, inScenarios}},
	{"order by string", "the id in front of the number decides who is first", "recipe/order.go",
		[]edit{{"		} else if !earlier {", "		} else if earlier = name < own; !earlier {"}}, []string{inRecipe}},
	{"order by numbers at the counter's end", "where all have one number, or negative ones, two hold", "recipe/order.go",
		[]edit{{"return number < 0 || number >= lateFrom", "return false"}}, []string{inRecipe}},
	{"order measured from the first listed", "a made-up number turns the order of the others round", "recipe/order.go",
		[]edit{{"	slices.SortFunc(ranks, rank.compare)\n", `	base := append(ranks, rank{})[0].first
	slices.SortStableFunc(ranks, func(a, b rank) int { return cmp.Compare(int32(a.first-base), int32(b.first-base)) })
`}}, []string{inRecipe}},
	{"a downgraded reader's own czxid", "a writer comes in beside a reader that was a writer, at the counter's end", "recipe/order.go",
		[]edit{{"	if n.Czxid != 0 {", "	if n.Czxid < 0 {"}}, []string{inRecipe}},
	{"gone is gone", "near the counter's end, a writer comes in beside one that was downgraded meanwhile", "recipe/entry.go",
		[]edit{{"if !gone || e.q.Kind.final() {", "if !gone || true {"}}, []string{inScenarios}},
	{"renewal with hidden digests", "whoever had access to a directory by a digest has it no longer", "recipe/renew.go",
		[]edit{{"if a.Scheme == \"digest\" && strings.HasSuffix(a.ID, \":x\") {", "if a.Scheme == \"\" && strings.HasSuffix(a.ID, \":x\") {"}}, []string{"./zklock -run=Renewed"}},
	{"watch on the holder", "every release wakes everybody", "recipe/order.go",
		[]edit{{"if v.Watch == \"\" || near.compare(r) < 0 {", "if v.Watch == \"\" || near.compare(r) > 0 {"}}, []string{inRecipe}},
	{"list not validated", "who is not in the list believes to be the first", "recipe/wait.go",
		[]edit{{"		if !v.Present {\n			return ErrGone\n		}\n", "		if !v.Present {\n			return nil\n		}\n"}}, []string{inRecipe, inScenarios}},
	{"no second look", "the znode in front has gone, others in front of it have not", "recipe/wait.go",
		[]edit{{"return v.Ahead == 1 && w.e.q.Kind.final()", "return w.e.q.Kind.final()"}}, []string{inRecipe, inScenarios}},
	{"own znode not watched", "a waiter whose znode was removed holds when its turn would have come", "recipe/wait.go",
		[]edit{{"if e.own == nil || hasFired(e.own) {", "if e.own != nil && hasFired(e.own) {"},
			{"if e.own == nil || !e.own.StoodWhen(w) || !e.notified() {", "if e.own != nil && !e.own.StoodWhen(w) {"}},
		[]string{inRecipe, inScenarios}},
	{"predecessor first in the list", "of two znodes that are gone, the predecessor's end is told first, and believed", "session/watchall.go",
		[]edit{{"slices.Reverse(fresh)", "slices.Reverse(fresh[:0])"}}, []string{"./session -run=Watch", inScenarios}},
	{"order of two connections believed", "another server tells later of what was earlier", "session/watchall.go",
		[]edit{{" && w.t.conn == o.conn", ""}}, []string{"./session -run=Watch|TwoConnections", inScenarios}},
	{"orphan not deleted", "a create whose caller gave up stands in everybody's way", "recipe/ticket.go",
		[]edit{{"			if findErr != nil {\n				t.sweep()", "			if findErr != nil {"}}, []string{inRecipe, inScenarios}},
	{"place kept by a cancelled wait", "who gave up still stands in line", "zklock/lock.go",
		[]edit{{"	if err := t.Wait(ctx); err != nil {\n		l.c.giveUp(ctx, t)\n", "	if err := t.Wait(ctx); err != nil {\n		if ctx.Err() == nil {\n			l.c.giveUp(ctx, t)\n		}\n"}}, []string{inScenarios}},
	{"release by prefix", "an unlock deletes somebody else's znode", "recipe/leave.go",
		[]edit{{"		b := e.s.Grouped(trusted.Caller{})\n		b.Delete(e.node, -1)\n		err = b.Do(ctx)\n", `		names, _, listErr := e.s.List(ctx, e.q.Dir)
		err = listErr
		for _, name := range names {
			if name[:3] == e.prefix[:3] {
				return e.s.Delete(ctx, e.q.Dir+"/"+name, -1)
			}
		}
`}}, []string{inRecipe, inScenarios, inLocks}},
	{"release not repeated", "a deletion whose reply was lost is given up", "recipe/leave.go",
		[]edit{{"		case ctx.Err() == nil && transient(err):\n			err = e.delete(ctx)\n			continue\n		}\n		e.discard()", "		}"}}, []string{inRecipe, inScenarios}},
	{"foreign kinds accepted", "a mutex and a read/write lock share a directory", "recipe/kind.go",
		[]edit{{"return k == other || rw(k) && rw(other)", "return k == other || rw(k) || rw(other) || true"}}, []string{inRecipe, "./zklock -run=Conflict|Kind|Scenario"}},
	{"readers overtake a writer", "a writer waits for ever behind readers that came later", "recipe/kind.go",
		[]edit{{"return k.shares(ahead) && (k != Read || ahead != Read)", "return k.shares(ahead) && k != Read"}}, []string{inRecipe}},
	{"permits counted too late", "one more than the size gets in", "recipe/order.go",
		[]edit{{"return t.permits+n.Permits <= size", "return t.permits < size"}}, []string{inRecipe}},
	{"size read before the wait", "a semaphore that was made smaller is overfilled", "recipe/semaphore.go",
		[]edit{{"if err == nil && e.size < was {", "if err == nil && e.size < 0 {"}}, []string{inRecipe, "./zklock -run=Size|Semaphore|Resize"}},
	{"holders by a larger size forgotten", "after a Resize, one waits behind a holder as if that waited, and misses the room that others make", "recipe/semaphore.go",
		[]edit{{"v.Permits <= z.largest && stat.Czxid < z.written", "v.Permits < 0"}}, []string{"./zklock -run=Resize|Size|Semaphore"}},
	{"half a multi-lock adopted", "one znode of several is taken for all", "recipe/ticket.go",
		[]edit{{"	if all {\n		return true, nil\n	}\n	for", "	if all || t.czxid != 0 {\n		return true, nil\n	}\n	for"}},
		[]string{inRecipe, "./zklock -run=Multi|Scenario"}},
	{"lock delay without a loss noticed", "work of a holder that was lost overlaps with the next one's", "recipe/delay.go",
		[]edit{{"		if living[name] {", "		if living[name] || d >= 0 {"}}, []string{inRecipe, "./zklock -run=Delay|Scenario"}},

	{"hold apart from its session", "the session's end does not reach the hold", "zklock/hold.go",
		[]edit{{"holdContext{s.Context(), values, h}", "holdContext{context.Background(), values, h}"}}, []string{inScenarios}},
	{"grace not watched", "a holder that needs time to stop hears of the lease's end with everybody else", "session/deadline.go",
		[]edit{{"	most, added := s.graces.fire(left)\n", "	most, added := s.graces.fire(0)\n"}}, []string{"./zklock -run=Grace"}},
	{"grace not looked at", "after a stop of the process a worker goes on with a lock whose grace has begun", "zklock/grace.go",
		[]edit{{"	if a.lease().LeaseLeft() <= a.grace {\n", "	if a.lease().LeaseLeft() <= 0 {\n"}}, []string{"./zklock -run=Grace"}},
	{"grace without a lease for it", "a hold begins with less of the lease than its grace", "session/grace.go",
		[]edit{{"if f.LeaseLeft() >= d+f.s.Timeout()/gracePart {", "if f.LeaseLeft() >= 0 {"}}, []string{"./zklock -run=Grace"}},
	{"znode gone with the context", "with a maximum the next one holds while the work of the one before stops", "zklock/acquisition.go",
		[]edit{{"	if a.grace == 0 {\n		a.leaveExpired()", "	if a.grace >= 0 {\n		a.leaveExpired()"}}, []string{"./zklock -run=Grace"}},
	{"max hold keeps the znode", "the context ends and nobody else gets the lock", "zklock/acquisition.go",
		[]edit{{"		if err := a.leave(ctx, true); err != nil {", "		if err := ctx.Err(); err != nil {"}}, []string{inScenarios, "./zklock -run=MaxHold"}},
	{"release that meets a loss gives nothing up", "the other places of a lock of several paths stand until the session ends", "zklock/acquisition.go",
		[]edit{{"		if err := a.leave(ctx, false); err != nil {\n			a.c.unreleased", "		if err := a.ended(); err == nil {\n			a.c.unreleased"}}, []string{"./zklock -run=WhileItsUnlockIsUnderWay"}},
	{"Check without the owner", "a znode of another session passes for ours", "recipe/use.go",
		[]edit{{"look.Err == nil && look.Value.EphemeralOwner != t.s.ID():", "look.Err == nil && look.Value.EphemeralOwner == -1:"}}, []string{"./zklock -run=Check|Scenario"}},
	{"Multi without the lock", "a holder that was lost goes on writing", "recipe/use.go",
		[]edit{{"guarded = append(guarded, &zk.CheckVersionRequest{Path: node, Version: -1})", "_ = node"}}, []string{inScenarios, "./zklock -run=Multi"}},
	{"lost turn handed on", "after a hold that was lost the next one in the process has its znode and its token", "internal/handoff/turn.go",
		[]edit{{"	t.lose(cause)\n	t.Ticket.Lose(cause)\n", ""}}, []string{"./zklock -run=TestAfterALoss|TestLocalHandoffWhile"}},
	{"turn handed on with a write in doubt", "a Multi of one holder is carried out in the time of the next", "internal/handoff/turn.go",
		[]edit{{"	case t.inDoubt.Load() > 0,\n", "	case false,\n"}}, []string{"./zklock -run=TestAZnodeThatAMultiMayStillCheck"}},
	{"turn handed on for ever", "a process keeps the lock from those who wait elsewhere", "internal/handoff/turn.go",
		[]edit{{"t.others == present && (t.left == 0 || !waiting || !time.Now().Before(t.until))", "false"}}, []string{"./zklock -run=TestNHandOvers|TestASecondAtMost"}},
	{"Break whoever it is", "the next holder is removed in the place of the one that hung", "zklock/queue.go",
		[]edit{{"n.Err == nil && Token(n.Stat.Czxid) == t {", "n.Err == nil {"}}, []string{"./zklock -run=Break|Queue|Scenario"}},
	{"own lock waited for", "a call waits for the hold that its caller has", "zklock/lock.go",
		[]edit{{"		if !l.o.reentrant {\n			return nil, ErrDeadlock\n", "		if !l.o.reentrant {\n			return nil, nil\n"}}, []string{"./zklock -run=Test.*(Deadlock|Reentr)|TestScenario"}},
	{"reads of many znodes all at once", "a look at a line of contenders with much data delays the heartbeat", "session/below.go",
		[]edit{{"bytes > batchBytes && len(requests) > 0", "false"}}, []string{"./session -run=Read"}},
	{"long lists not counted", "a burst of calls on a lock with a long list delays the heartbeat", "session/connwrite.go",
		[]edit{{"r.expect = c.s.sizes.expect(r)", "r.expect = 0"}}, []string{"./session -run=List", inScenarios}},
	{"holder's data read by every waiter", "many waiters behind a holder with much data delay the heartbeat", "recipe/heads.go",
		[]edit{{"return stat.DataLength <= MaxData", "return true"}}, []string{inScenarios}},
	{"long reply gives up the connection", "a neighbour's long names make every lock of the client reconnect, for ever", "session/connread.go",
		[]edit{{"case size < replyHeaderLen:", "case size < replyHeaderLen, size > maxFrame:"}}, []string{"./session -run=TooLong", "./zklock -run=TooLarge"}},
	{"request of any size leaves", "the server hangs up on it, at every attempt", "session/request.go",
		[]edit{{"size > s.cfg.packetLimit {", "size > 1<<30 {"}}, []string{"./session -run=BeyondTheServersLimit|PacketLimit"}},
	{"patience does not adapt", "where writes are slow on every server, all holds are lost", "session/connevents.go",
		[]edit{{"s.stalls = min(s.stalls+1, maxStalls)", "s.stalls = 0"}}, []string{"./session -run=Patience|SlowEverywhere"}},
	{"no sync behind an event", "after a reconnection a lagging server shows what was before the last holder's write", "session/connevents.go",
		[]edit{{"	if s.unseen { // before", "	if false { // before"}}, []string{"./session -run=BehindAReconnect"}},
	{"unsent creates are swept", "an outage ends with requests for what was never sent", "recipe/ticket.go",
		[]edit{{"	if errors.Is(err, session.ErrNotSent) {\n		return true", "	if errors.Is(err, session.ErrNotSent) {\n		return false"}}, []string{"./recipe -run=Disconnected"}},
}
