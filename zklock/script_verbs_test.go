package zklock_test

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// stageVerbs are what happens to no client in particular. Those that have something to tell return
// it.
var stageVerbs map[string]func(a scriptArgs) string

// callVerbs are what a client's call does: a.word(0) is its name.
var callVerbs map[string]func(a scriptArgs) string

func init() {
	stageVerbs = map[string]func(a scriptArgs) string{
		// scene ends the scene before. What follows it is for the reader.
		"scene": func(a scriptArgs) string { a.end(a.at); return "" },

		"sleep": func(a scriptArgs) string { time.Sleep(a.duration(a.word(0))); return "" },
		// later 10s: sleep, which tells what came before it ended
		"later": func(a scriptArgs) string {
			time.Sleep(a.duration(a.word(0)))
			return a.word(0) + " later"
		},
		// await 30s a: until a's call has returned, or a's hold has ended; or the fault a has
		// struck
		"await": func(a scriptArgs) string {
			var over <-chan struct{}
			if c, f := a.calls[a.word(1)], a.faults[a.word(1)]; f != nil {
				over = f.Hit()
			} else {
				require.NotNil(a, c, a.at)
				if over = c.over; c.held() != nil {
					over = c.held().Context().Done()
				}
			}
			select {
			case <-over:
			case <-time.After(a.duration(a.word(0))):
				require.Fail(a, "not in time", a.at)
			}
			return ""
		},

		// show /l: whose znodes are there
		"show": func(a scriptArgs) string {
			dir := a.word(0)
			var owners []string
			for _, name := range locktest.Contenders(a.Server.Children(dir)) {
				owners = append(owners, a.owner(dir+"/"+name))
			}
			return dir + ": " + cmp.Or(strings.Join(owners, " "), "nobody")
		},
		// watches: what each client watches
		"watches": func(a scriptArgs) string {
			var lines []string
			for _, name := range a.names() {
				var on []string
				for _, p := range a.Watched(a.clients[name].SessionID()) {
					on = append(on, a.owner(p))
				}
				slices.Sort(on)
				lines = append(lines, name+" watches "+cmp.Or(strings.Join(on, " "), "nothing"))
			}
			return strings.Join(lines, "\n")
		},
		// sessions: who still has the first one
		"sessions": func(a scriptArgs) string {
			of := map[bool][]string{}
			for _, name := range a.names() {
				first := a.clients[name].SessionID() == a.first[name]
				of[first] = append(of[first], name)
			}
			return sayAll(of[true], "has its first session", "have their first sessions") +
				sayAll(of[false], "has another session", "have other sessions")
		},
		// requests create delete: how many there were in this scene; requests: all that came since
		// that was last asked, or since from-now
		"requests": func(a scriptArgs) string {
			if len(a.words) == 0 {
				return a.requested()
			}
			var counts []string
			now := a.Server.Requests()
			for _, op := range a.ops(a.words) {
				counts = append(counts, fmt.Sprintf("%d %v", now[op]-a.asked[op], op))
			}
			return strings.Join(counts, ", ")
		},
		// tokens a b: how they compare
		"tokens": func(a scriptArgs) string {
			h, other := a.calls[a.word(0)].held(), a.calls[a.word(1)].held()
			require.True(a, h != nil && other != nil, "%s: one of them does not hold", a.at)
			sign := []string{"<", "=", ">"}[cmp.Compare(h.Token(), other.Token())+1]
			return fmt.Sprintf("%s's token %s %s's", a.word(0), sign, a.word(1))
		},

		// create /l: also if it is there
		"create": func(a scriptArgs) string {
			if _, ok := a.Server.Node(a.word(0)); !ok {
				a.Dir(a.word(0))
			}
			return ""
		},
		// delete a; delete a@/m/b: the one of its znodes that is there; delete /l/name
		"delete": func(a scriptArgs) string {
			for _, word := range a.words {
				require.NoError(a, a.Server.Delete(a.znode(word)), a.at)
			}
			return ""
		},
		"delete-all": func(a scriptArgs) string {
			require.NoError(a, a.Server.DeleteAll(a.word(0)), a.at)
			return ""
		},
		// remove-dir /l upwards: with the children, in one transaction
		"remove-dir": func(a scriptArgs) string {
			a.RemoveDir(a.word(0), slices.Contains(a.words, "upwards"))
			return ""
		},
		"set": func(a scriptArgs) string {
			p := a.znode(a.word(0))
			require.NoError(a, a.Server.SetData(p, []byte(strings.Join(a.words[1:], " "))), a.at)
			return ""
		},
		"data": func(a scriptArgs) string {
			n, ok := a.Server.Node(a.word(0))
			if !ok {
				return "no such znode"
			}
			return fmt.Sprintf("%q", n.Data)
		},
		"sequence": func(a scriptArgs) string {
			require.NoError(a, a.Server.SetSequence(a.word(0), int32(a.number(1))), a.at)
			return ""
		},
		"expire": func(a scriptArgs) string {
			require.NoError(a, a.Server.Expire(a.client(a.word(0)).SessionID()), a.at)
			return ""
		},

		"follower": func(a scriptArgs) string { a.members[a.word(0)] = a.Follower(); return "" },
		"depose":   func(a scriptArgs) string { a.member(0).Depose(); return "" },
		"lag":      func(a scriptArgs) string { a.member(0).Lag(a.number(1)); return "" },
		"cut-off":  func(a scriptArgs) string { a.member(0).CutOff(); return "" },
		"heal":     func(a scriptArgs) string { a.member(0).Heal(); return "" },
		"down":     func(a scriptArgs) string { a.member(0).Down(); return "" },
		"up":       func(a scriptArgs) string { a.member(0).Up(); return "" },
		"drop":     func(a scriptArgs) string { a.member(0).DropConnections(); return "" },

		// fault f close-after create path=/l/* of=a nth=2 times=1 at=leader
		"fault":   func(a scriptArgs) string { return a.inject() },
		"release": func(a scriptArgs) string { a.faults[a.word(0)].Release(); return "" },
		"remove":  func(a scriptArgs) string { a.faults[a.word(0)].Remove(); return "" },
		"hits": func(a scriptArgs) string {
			n := a.faults[a.word(0)].Hits()
			if most := a.option("below"); most != "" {
				require.Less(a, n, a.integer(most), a.at)
				return a.word(0) + " has struck fewer than " + most + " times"
			}
			return fmt.Sprintf("%s has struck %d times", a.word(0), n)
		},

		// plant /l/name: a znode of exactly that name, of a session of another program
		"plant": func(a scriptArgs) string { a.Plant(a.stranger(), a.word(0)); return "" },
		// shut /l: who is no administrator may only read it
		"shut": func(a scriptArgs) string {
			_, err := a.stranger().SetACL(a.Context(), a.word(0), zk.WorldACL(zk.PermRead), -1)
			require.NoError(a, err, a.at)
			return ""
		},
		// changes /l: how many children of it have been made and deleted
		"changes": func(a scriptArgs) string {
			n, _ := a.Server.Node(a.word(0))
			return fmt.Sprintf("%d changes of %s", n.Stat.Cversion, a.word(0))
		},
		// events: who has been sent how many since that was last asked, or since from-now
		"events":   func(a scriptArgs) string { return a.notified() },
		"from-now": func(a scriptArgs) string { a.notified(); a.requested(); return "" },
	}

	callVerbs = map[string]func(a scriptArgs) string{
		// connect session=4s at=follower
		"connect": func(a scriptArgs) string {
			var opts []zklock.Option
			if d := a.option("session"); d != "" {
				opts = append(opts, zklock.WithSessionTimeout(a.duration(d)))
			}
			if at := a.option("at"); at != "" {
				a.clients[a.word(0)] = a.ClientAt(a.members[at], opts...)
				a.first[a.word(0)] = a.clients[a.word(0)].SessionID()
				return ""
			}
			a.client(a.word(0), opts...)
			return ""
		},
		"lead-to": func(a scriptArgs) string { a.client(a.word(0)).LeadTo(a.member(1)); return "" },
		"close": func(a scriptArgs) string {
			return a.during(a.word(0)+" close", a.client(a.word(0)).Close)
		},

		"lock": func(a scriptArgs) string { return a.start(a, a.words[1:2], a.mutex().Lock) },
		"try-lock": func(a scriptArgs) string {
			return a.start(a, a.words[1:2], a.mutex().TryLock)
		},
		"write": func(a scriptArgs) string { return a.start(a, a.words[1:2], a.rwMutex().Lock) },
		"try-write": func(a scriptArgs) string {
			return a.start(a, a.words[1:2], a.rwMutex().TryLock)
		},
		"read": func(a scriptArgs) string {
			return a.start(a, a.words[1:2], a.rwMutex().RLock)
		},
		"try-read": func(a scriptArgs) string {
			return a.start(a, a.words[1:2], a.rwMutex().TryRLock)
		},
		// acquire /s 2 of 3
		"acquire": func(a scriptArgs) string {
			return a.start(a, a.words[1:2], locktest.Permits(a.semaphore(a.number(4)), a.number(2)))
		},
		"try-acquire": func(a scriptArgs) string {
			sem, n := a.semaphore(a.number(4)), a.number(2)
			return a.start(a, a.words[1:2],
				func(ctx context.Context) (context.Context, *zklock.Hold, error) {
					return sem.TryAcquire(ctx, n)
				})
		},
		"resize": func(a scriptArgs) string {
			sem, size := a.semaphore(1), a.number(2)
			return a.start(a, a.words[1:2],
				func(ctx context.Context) (context.Context, *zklock.Hold, error) {
					return ctx, nil, sem.Resize(ctx, size)
				})
		},
		"size": func(a scriptArgs) string {
			size, free, err := a.semaphore(1).Size(a.Context())
			if err != nil {
				return errorNames(err)
			}
			return fmt.Sprintf("%d permits, %d free", size, free)
		},
		// lock-all /m/a /m/b
		"lock-all": func(a scriptArgs) string {
			return a.start(a, a.words[1:],
				a.client(a.word(0)).MultiLock(a.words[1:], a.lockOptions()...).Lock)
		},
		"try-lock-all": func(a scriptArgs) string {
			return a.start(a, a.words[1:],
				a.client(a.word(0)).MultiLock(a.words[1:], a.lockOptions()...).TryLock)
		},
		// campaign /e value rank=3
		"campaign": func(a scriptArgs) string {
			value := strings.Join(a.words[2:], " ")
			return a.start(a, a.words[1:2], locktest.Campaign(a.election(), value))
		},
		"leader": func(a scriptArgs) string {
			leader, err := a.election().Leader(a.Context())
			if err != nil {
				return errorNames(err)
			}
			return fmt.Sprintf("the leader's value is %q", leader.Value)
		},
		"proclaim": func(a scriptArgs) string {
			c := a.calls[a.word(0)]
			e := a.client(a.word(0)).Election(c.paths[0])
			ctx, done := a.timeout()
			defer done()
			return "proclaim: " + errorNames(e.Proclaim(ctx, c.held(), []byte(a.word(1))))
		},

		"cancel": func(a scriptArgs) string { a.call().cancel(); return "" },
		"unlock": func(a scriptArgs) string {
			c := a.call()
			if c.held() == nil {
				return a.word(0) + " has no hold"
			}
			a.mu.Lock()
			c.unlocked = true
			a.mu.Unlock()
			return a.during(a.word(0)+" unlock", c.held().Unlock)
		},
		// a sets /data x: in a transaction under its hold
		"sets": func(a scriptArgs) string {
			c := a.call()
			op := session.OpSet{Path: a.word(1), Data: []byte(strings.Join(a.words[2:], " ")),
				Version: -1}
			return a.during(a.word(0)+" sets "+strings.Join(a.words[1:], " "), func() error {
				_, err := c.held().Multi(a.Context(), op)
				return err
			})
		},
		// a says what its error must contain
		"says": func(a scriptArgs) string {
			c := a.call()
			require.True(a, a.settled(c), "%s: it has not failed", a.at)
			require.ErrorContains(a, c.err, strings.Join(a.words[1:], " "), a.at)
			return ""
		},
		// b hears deleted a: an event of the znode of a's call, whatever has happened
		"hears": func(a scriptArgs) string {
			typ, node := slices.Index([]string{"", "created", "deleted", "data", "children"},
				a.word(1)), a.word(2)
			if typ < 0 {
				typ = a.number(1)
			}
			require.NoError(a,
				a.Server.SendFrame(a.client(a.word(0)).SessionID(),
					event(int32(typ), a.znode(node))), a.at)
			return ""
		},
		"check": func(a scriptArgs) string {
			h := a.call().held()
			require.NotNil(a, h, "%s: it does not hold", a.at)
			return a.word(0) + " check: " + errorNames(h.Check(a.Context()))
		},
		"holds?": func(a scriptArgs) string {
			c := a.call()
			if c.held() == nil {
				return a.word(0) + " has no hold"
			}
			return a.word(0) + "'s hold: " + errorNames(c.held().Err())
		},

		// a why: the words of the error of a call
		"why": func(a scriptArgs) string {
			require.Error(a, a.call().err, a.at)
			return a.call().err.Error()
		},
		// observe /e, until cancel
		"observe": func(a scriptArgs) string { return a.observe() },
		// run /e value slow=3s: leads until its term ends, or finish, and then works on for as long
		"run":    func(a scriptArgs) string { return a.run() },
		"finish": func(a scriptArgs) string { close(a.call().finish); return "" },
		// once /jobs/j key takes=1m fails=yes at-most=once, and options of locks
		"once": func(a scriptArgs) string {
			key := a.word(2)
			return a.job(func(ctx context.Context, j *zklock.Job,
				fn func(context.Context) error) (zklock.JobRun, error) {
				return j.Once(ctx, key, fn)
			})
		},
		// every /jobs/j 1h
		"every": func(a scriptArgs) string {
			d := a.duration(a.word(2))
			return a.job(func(ctx context.Context, j *zklock.Job,
				fn func(context.Context) error) (zklock.JobRun, error) {
				return j.Every(ctx, d, fn)
			})
		},
		"runs": func(a scriptArgs) string { return a.runs() },
		// forget /jobs/j key; forget /jobs/j: the last run of Every
		"forget": func(a scriptArgs) string { return a.forget() },
		// forget-before /jobs/j 10m: what began before so long ago
		"forget-before": func(a scriptArgs) string { return a.forgetBefore() },
	}
}

// sayAll says what is true of each of names.
func sayAll(names []string, one, several string) string {
	switch len(names) {
	case 0:
		return ""
	case 1:
		return names[0] + " " + one + "\n"
	}
	return strings.Join(names, " ") + " " + several + "\n"
}

// call returns the call that the line names.
func (a scriptArgs) call() *scriptCall {
	a.Helper()
	c := a.calls[a.word(0)]
	require.NotNil(a, c, "%s: no such call", a.at)
	return c
}

// timeout takes that option: a call's context.
func (a scriptArgs) timeout() (context.Context, context.CancelFunc) {
	if d := a.option("timeout"); d != "" {
		return context.WithTimeout(a.Context(), a.duration(d))
	}
	return context.WithCancel(a.Context())
}

// event is a notification as a server sends it.
func event(typ int32, path string) []byte {
	b := binary.BigEndian.AppendUint32(nil, 0xffffffff) // xid
	b = binary.BigEndian.AppendUint64(b, 0xffffffffffffffff)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(typ))
	b = binary.BigEndian.AppendUint32(b, 3) // connected
	b = binary.BigEndian.AppendUint32(b, uint32(len(path)))
	return append(b, path...)
}

// znode returns the path that a word says: one, or a call's znode, or a call's znode at a path.
func (a scriptArgs) znode(word string) string {
	a.Helper()
	name, dir, at := strings.Cut(word, "@")
	c := a.calls[name]
	switch {
	case c == nil:
		return word
	case !at && c.hold != nil:
		return c.hold.Node()
	case !at:
		dir = c.paths[0]
	}
	id := a.client(name).SessionID()
	for _, child := range slices.Backward(locktest.Contenders(a.Server.Children(dir))) {
		if n, _ := a.Server.Node(path.Join(dir, child)); n.Stat.EphemeralOwner == id {
			return path.Join(dir, child)
		}
	}
	require.Fail(a, "no znode", "%s: of %s", a.at, word)
	return ""
}

// names returns the clients' names in order.
func (st *stage) names() []string {
	var names []string
	for name := range st.clients {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (a scriptArgs) member(i int) *zktest.Member {
	a.Helper()
	name := "leader"
	if i < len(a.words) {
		name = a.word(i)
	}
	require.NotNil(a, a.members[name], "%s: no such server", a.at)
	return a.members[name]
}

func (a scriptArgs) mutex() *zklock.Mutex {
	return a.client(a.word(0)).Mutex(a.word(1), a.lockOptions()...)
}

func (a scriptArgs) rwMutex() *zklock.RWMutex {
	return a.client(a.word(0)).RWMutex(a.word(1), a.lockOptions()...)
}

// semaphore is the same one for all calls of a client that say the same of it.
func (a scriptArgs) semaphore(size int) *zklock.Semaphore {
	name, _, _ := strings.Cut(a.word(0), ".")
	key := fmt.Sprint(name, a.word(1), size, a.options["max-wait"], a.options["max-hold"],
		a.options["with"])
	opts := a.lockOptions()
	if a.semaphores[key] == nil {
		a.semaphores[key] = a.client(name).Semaphore(a.word(1), size, opts...)
	}
	return a.semaphores[key]
}

func (a scriptArgs) election() *zklock.Election {
	rank := a.option("rank")
	e := a.client(a.word(0)).Election(a.word(1), a.lockOptions()...)
	if rank != "" {
		return e.WithRank(a.integer(rank))
	}
	return e
}

// lockOptions takes the options of a lock: max-wait=1s max-hold=1m owner=x
// with=reentrancy,handoff,container,blind
func (a scriptArgs) lockOptions() []zklock.LockOption {
	a.Helper()
	var opts []zklock.LockOption
	if d := a.option("max-wait"); d != "" {
		opts = append(opts, zklock.WithMaxWait(a.duration(d)))
	}
	if d := a.option("max-hold"); d != "" {
		opts = append(opts, zklock.WithMaxHold(a.duration(d)))
	}
	if owner := a.option("owner"); owner != "" {
		opts = append(opts, zklock.WithOwner(owner))
	}
	for _, with := range strings.FieldsFunc(a.option("with"), func(r rune) bool {
		return r == ','
	}) {
		opt, ok := map[string]zklock.LockOption{
			"reentrancy": zklock.WithReentrancy(), "handoff": zklock.WithLocalHandoff(),
			"container": zklock.WithContainer(),
			"blind":     zklock.WithACL(zk.WorldACL(zk.PermAll &^ zk.PermRead)...),
		}[with]
		require.True(a, ok, "%s: %s", a.at, with)
		opts = append(opts, opt)
	}
	return opts
}

// inject puts a fault into effect: its name, what it does, and the operations that it strikes.
func (a scriptArgs) inject() string {
	a.Helper()
	kinds := map[string]fault.Fault{
		"close-before": fault.CloseBefore(), "close-after": fault.CloseAfter(),
		"drop-request": fault.DropRequest(),
		"drop-reply":   fault.DropReply(), "hold": fault.Hold(), "hold-reply": fault.HoldReply(),
		"freeze":         fault.Freeze(),
		"freeze-replies": fault.FreezeReplies(), "freeze-requests": fault.FreezeRequests(),
		"refuse":         fault.Refuse(),
		"expire-session": fault.ExpireSession(), "cut-short": fault.Truncate(9),
		"stall": fault.Stall(0), "stall-within": fault.Stall(19),
		"no-auth":       fault.Answer(fault.CodeNoAuth),
		"unimplemented": fault.Answer(fault.CodeUnimplemented),
		"bad-arguments": fault.Answer(fault.CodeBadArguments),
		"answer-ok":     fault.Answer(fault.CodeOK),
		"garble":        garbledLeader(), "throttled": fault.Answer(-127),
		"too-late":          fault.Answer(fault.CodeOperationTimeout),
		"not-now":           fault.Answer(fault.CodeConnectionLoss),
		"expired":           fault.Answer(fault.CodeSessionExpired),
		"marshalling-error": fault.Answer(fault.CodeMarshallingError),
		"not-now-inside":    fault.AnswerInside(fault.CodeConnectionLoss),
		"no-quota-inside":   fault.AnswerInside(-125),
		"garbled":           fault.Garble(func(b []byte) []byte { return b[:20] }),
		"system-error": fault.Garble(func(b []byte) []byte {
			return binary.BigEndian.AppendUint32(b[:12], 0xffffffff)
		}),
		// behind version, timeout and the rest of the number
		"other-session": fault.Garble(func(b []byte) []byte { b[15]++; return b }),
	}
	f, ok := kinds[a.word(1)]
	require.True(a, ok, "%s: no such fault", a.at)
	if ops := a.ops(a.words[2:]); ops != nil {
		f = f.Op(ops...)
	}
	if p := a.option("path"); p != "" {
		f = f.Path(p)
	}
	if of := a.option("of"); of != "" {
		f = f.Session(a.client(of).SessionID())
	}
	for key, count := range map[string]func(int) fault.Fault{"nth": f.Nth, "times": f.Times,
		"after": f.After} {
		if text := a.option(key); text != "" {
			f = count(a.integer(text))
		}
	}
	if at := a.option("at"); at != "" {
		a.faults[a.word(0)] = a.members[at].Inject(f)
	} else {
		a.faults[a.word(0)] = a.Server.Inject(f)
	}
	synctest.Wait()
	return ""
}

func (a scriptArgs) ops(words []string) (ops []fault.Op) {
	a.Helper()
	for _, word := range words {
		i := slices.IndexFunc(scriptOps, func(op fault.Op) bool { return op.String() == word })
		require.GreaterOrEqual(a, i, 0, "%s: no such operation: %s", a.at, word)
		ops = append(ops, scriptOps[i])
	}
	return ops
}

var scriptOps = []fault.Op{
	fault.OpCreate, fault.OpCreate2, fault.OpCreateContainer, fault.OpDelete, fault.OpExists,
	fault.OpGetData, fault.OpSetData,
	fault.OpGetChildren, fault.OpGetChildren2, fault.OpSync, fault.OpPing, fault.OpMulti,
	fault.OpMultiRead, fault.OpSetWatches,
	fault.OpSetWatches2, fault.OpNotify, fault.OpConnect, fault.OpCloseSession,
}
