package recipe_test

import (
	"context"
	"fmt"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zktest"
)

// markBubble is bubble with a server of its own kind, and a watcher that sees every znode below the lock come and go.
func markBubble(t *testing.T, fn func(t *testing.T, srv *zktest.Server), opts ...zktest.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		hung := time.AfterFunc(4*time.Hour, func() { panic(t.Name() + " waits for ever") })
		defer hung.Stop()
		fn(t, zktest.Run(t, append(opts, zktest.WithoutListener())...))
	})
}

// placed is a ticket in line, of a session of its own, and its Wait.
type placed struct {
	*recipe.Ticket
	node string
	done <-chan error
	s    *session.Session
}

// line enters n tickets, one behind the other. The first holds; the others wait.
func line(t *testing.T, srv *zktest.Server, n int, kind func(i int) recipe.Queue) []placed {
	t.Helper()
	var all []placed
	for i := range n {
		s := open(t, srv)
		ticket := enter(t, kind(i), s)
		p := placed{ticket, ticket.Nodes()[0], wait(ticket, within(t, time.Hour)), s}
		if i == 0 {
			require.NoError(t, <-p.done)
		} else {
			pending(t, p.done)
		}
		all = append(all, p)
	}
	return all
}

// mutexes shares what is known of access lists, as the calls of one client do.
func mutexes() func(int) recipe.Queue {
	permitted := recipe.NewPermitted()
	return func(int) recipe.Queue {
		q := queue()
		q.Permitted = permitted
		return q
	}
}

func lists(srv *zktest.Server) int { return srv.Requests()[zktest.OpGetChildren2] }

// holdsAtOnce requires that p holds without the passage of any time, after so many further lists.
func holdsAtOnce(t *testing.T, srv *zktest.Server, p placed, before, more int) {
	t.Helper()
	at := time.Now()
	require.NoError(t, <-p.done)
	require.Equal(t, at, time.Now())
	require.Equal(t, more, lists(srv)-before, "lists")
}

func requireLeft(t *testing.T, srv *zktest.Server, all []placed) {
	t.Helper()
	synctest.Wait()
	require.Empty(t, srv.Children("/l"))
	require.Zero(t, srv.WatchCount(), "%v", srv.Watches())
	for _, p := range all {
		if p.s.Err() == nil {
			require.Zero(t, p.s.EphemeralBytes())
		}
	}
}

func TestWhoHadToWaitHandsOverByItsWordAndNobodyLists(t *testing.T) {
	writers := func(int) recipe.Queue { return writer() }
	for name, c := range map[string]struct {
		kind  func(i int) recipe.Queue
		first int // lists when the first one leaves, which leaves no mark
		opts  []zktest.Option
	}{
		"3.8":                  {mutexes(), 0, []zktest.Option{zktest.WithVersion(zktest.Version38)}},
		"3.9":                  {mutexes(), 0, []zktest.Option{zktest.WithVersion(zktest.Version39)}},
		"events after replies": {mutexes(), 0, []zktest.Option{zktest.WithLateEvents()}},
		"writers":              {writers, 1, nil},
		"a reader at the end": {func(i int) recipe.Queue {
			q := writer()
			if i == 4 {
				q.Kind = recipe.Read
			}
			return q
		}, 1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			markBubble(t, func(t *testing.T, srv *zktest.Server) {
				all := line(t, srv, 5, c.kind)
				for i, p := range all {
					synctest.Wait()
					before, requests := lists(srv), srv.Requests()
					require.NoError(t, p.Leave(within(t, soon)))
					if i+1 == len(all) {
						break
					}
					if i == 0 {
						holdsAtOnce(t, srv, all[1], before, c.first)
						continue
					}
					holdsAtOnce(t, srv, all[i+1], before, 0)
					after := srv.Requests()
					for _, op := range []zktest.Op{zktest.OpExists, zktest.OpSetWatches, zktest.OpGetData, zktest.OpSync, zktest.OpRemoveWatches, zktest.OpDelete} {
						require.Equal(t, requests[op], after[op], "%v", op)
					}
				}
				requireLeft(t, srv, all)
			}, c.opts...)
		})
	}
}

// Where watches are set one by one, or may not be taken away, a mark would cost what it saves.
func TestServersWithoutSetWatchesAreNotAskedForMarks(t *testing.T) {
	for name, c := range map[string]struct {
		unimplemented bool
		opts          []zktest.Option
	}{
		"unimplemented": {true, nil},
		"Keeper":        {false, []zktest.Option{zktest.WithVersion(zktest.Keeper26)}},
		"old Keeper":    {false, []zktest.Option{zktest.WithVersion(zktest.Keeper22)}},
	} {
		t.Run(name, func(t *testing.T) {
			markBubble(t, func(t *testing.T, srv *zktest.Server) {
				if c.unimplemented {
					srv.Inject(zktest.Answer(zktest.CodeUnimplemented).Op(zktest.OpSetWatches))
				}
				all := line(t, srv, 4, mutexes())
				for i, p := range all {
					require.NoError(t, p.Leave(within(t, soon)))
					if i+1 < len(all) {
						require.NoError(t, <-all[i+1].done)
					}
				}
				require.Zero(t, srv.Requests()[zktest.OpMulti], "nor does anybody make one")
				requireLeft(t, srv, all)
			}, c.opts...)
		})
	}
}

func TestWithoutAMarkTheListDecides(t *testing.T) {
	for name, c := range map[string]struct {
		goes  func(t *testing.T, srv *zktest.Server, p placed) // the middle one of three, which waits
		lists int
	}{
		"the predecessor gives up": {func(t *testing.T, _ *zktest.Server, p placed) {
			require.NoError(t, p.Leave(within(t, soon)))
		}, 1},
		"it is removed": {func(t *testing.T, srv *zktest.Server, p placed) { require.NoError(t, srv.Delete(p.node)) }, 1},
		"its session ends": {func(t *testing.T, srv *zktest.Server, p placed) {
			require.NoError(t, srv.Expire(p.s.ID()))
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			markBubble(t, func(t *testing.T, srv *zktest.Server) {
				all := line(t, srv, 3, mutexes())
				require.Equal(t, 1, marksWatched(srv))
				before := lists(srv)
				c.goes(t, srv, all[1])
				pending(t, all[2].done)
				require.Equal(t, c.lists, lists(srv)-before)
				require.Zero(t, marksWatched(srv), "a mark that is never made is not watched any more")
				require.NoError(t, all[0].Leave(within(t, soon)))
				holdsAtOnce(t, srv, all[2], before, c.lists)
				require.NoError(t, all[2].Leave(within(t, soon)))
				requireLeft(t, srv, all)
			})
		})
	}
}

// marksWatched counts the watches on marks.
func marksWatched(srv *zktest.Server) (n int) {
	for _, w := range srv.Watches() {
		if strings.HasSuffix(w.Path, "-released") {
			n++
		}
	}
	return n
}

// A holder that had to wait, and goes without a word: crashed, or removed.
func TestAHolderThatGoesWithoutAWordCostsAList(t *testing.T) {
	markBubble(t, func(t *testing.T, srv *zktest.Server) {
		all := line(t, srv, 4, mutexes())
		require.NoError(t, all[0].Leave(within(t, soon)))
		require.NoError(t, <-all[1].done)
		before := lists(srv)
		require.NoError(t, srv.Expire(all[1].s.ID()))
		holdsAtOnce(t, srv, all[2], before, 1)
		require.NoError(t, srv.Delete(all[2].node))
		holdsAtOnce(t, srv, all[3], before, 2)
		require.NoError(t, all[3].Leave(within(t, soon)))
		requireLeft(t, srv, all)
	})
}

// A server that refuses the mark gets the plain delete.
func TestAReleaseWhoseMarkIsRefusedIsAPlainDelete(t *testing.T) {
	for name, refuse := range map[string]func(t *testing.T, srv *zktest.Server, p placed){
		"permission": func(_ *testing.T, srv *zktest.Server, p placed) {
			srv.Inject(zktest.AnswerInside(zktest.CodeNoAuth).Op(zktest.OpMulti).Path(p.node + "*"))
		},
		"quota": func(_ *testing.T, srv *zktest.Server, p placed) {
			srv.Inject(zktest.AnswerInside(-125).Op(zktest.OpMulti).Path(p.node + "*"))
		},
		"a znode of its name": func(t *testing.T, srv *zktest.Server, p placed) {
			require.NoError(t, srv.Create(p.node+"-released", nil))
		},
		"an answer to the whole": func(_ *testing.T, srv *zktest.Server, p placed) {
			srv.Inject(zktest.Answer(zktest.CodeUnimplemented).Op(zktest.OpMulti).Path(p.node + "*"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			markBubble(t, func(t *testing.T, srv *zktest.Server) {
				all := line(t, srv, 3, mutexes())
				refuse(t, srv, all[1])
				require.NoError(t, all[0].Leave(within(t, soon)))
				require.NoError(t, <-all[1].done)
				require.NoError(t, all[1].Leave(within(t, soon)))
				require.NoError(t, <-all[2].done)
				require.NoError(t, all[2].Leave(within(t, soon)))
				_ = srv.Delete(all[1].node + "-released") // where it was made
				requireLeft(t, srv, all)
			})
		})
	}
}

// A lie: somebody else makes the mark of a contender that does not hold, and that then goes by itself. What counts is the
// directory's access list as it is, not the one that the lock would give it.
// Where servers do not tell transactions, a client reads a directory's access list once, in the place of a list, and again
// when it has been changed.
// A mark is for a holder that goes: what is made beside one that stays wakes nobody, and is asked for again by nobody.
// What is told on a new connection may be told in another order: the list decides.
// Scenario: the waiter's own znode goes before its predecessor does, or both at once. It must not hold without one.
// The request for the watches is answered late: everything that can happen before its reply does.
// Who may not read its predecessor is not notified of its deletion; the mark is for everybody, and wakes it to list.
// A blind waiter lists on a mark once, whatever others make of it.
// The reply to a release is lost: it was carried out, or was not; the one behind it holds either way, and nothing stays
// counted.
func TestAReleaseWhoseReplyIsLostIsMadeAgain(t *testing.T) {
	for name, fault := range map[string]zktest.Fault{"carried out": zktest.CloseAfter(), "not carried out": zktest.CloseBefore()} {
		t.Run(name, func(t *testing.T) {
			markBubble(t, func(t *testing.T, srv *zktest.Server) {
				all := line(t, srv, 3, mutexes())
				require.NoError(t, all[0].Leave(within(t, soon)))
				require.NoError(t, <-all[1].done)
				srv.Inject(fault.Op(zktest.OpMulti).Path(all[1].node + "*").Once())
				before := lists(srv)
				require.NoError(t, all[1].Leave(within(t, soon)))
				require.NoError(t, <-all[2].done)
				require.Equal(t, before, lists(srv))
				require.NoError(t, all[2].Leave(within(t, soon)))
				requireLeft(t, srv, all)
			})
		})
	}
}

// Each queue of several has its own mark, and one transaction makes them all. In a queue in which the ticket was first
// there is none.
func TestSeveralPlacesAreLeftWithAMarkEach(t *testing.T) {
	markBubble(t, func(t *testing.T, srv *zktest.Server) {
		both := []recipe.Queue{{Dir: "/a", Kind: recipe.Lock, ACL: session.WorldACL()}, {Dir: "/b", Kind: recipe.Lock, ACL: session.WorldACL()}}
		one := func(dir string, s *session.Session) (*recipe.Ticket, <-chan error) {
			ticket, err := recipe.Enter(within(t, soon), s, recipe.Queue{Dir: dir, Kind: recipe.Lock, ACL: session.WorldACL()})
			require.NoError(t, err)
			return ticket, wait(ticket, within(t, time.Hour))
		}
		s := open(t, srv)
		first, done := one("/a", s)
		require.NoError(t, <-done)
		several, err := recipe.Enter(within(t, soon), open(t, srv), both...)
		require.NoError(t, err)
		severalDone := wait(several, within(t, time.Hour))
		pending(t, severalDone)
		behindA, doneA := one("/a", open(t, srv))
		behindB, doneB := one("/b", open(t, srv))
		again, err := recipe.Enter(within(t, soon), open(t, srv), both...)
		require.NoError(t, err)
		againDone := wait(again, within(t, time.Hour))
		pending(t, againDone)
		pending(t, doneA)
		pending(t, doneB)

		require.NoError(t, first.Leave(within(t, soon)))
		require.NoError(t, <-severalDone)
		synctest.Wait()
		before := lists(srv)
		require.NoError(t, several.Leave(within(t, soon)))
		require.NoError(t, <-doneA)
		require.NoError(t, <-doneB)
		require.Equal(t, before, lists(srv))
		require.NoError(t, behindB.Leave(within(t, soon)))
		pending(t, againDone)
		require.NoError(t, behindA.Leave(within(t, soon)))
		require.NoError(t, <-againDone)
		require.NoError(t, again.Leave(within(t, soon)))
		synctest.Wait()
		require.Empty(t, srv.Children("/a"))
		require.Empty(t, srv.Children("/b"))
		require.Zero(t, srv.WatchCount(), "%v", srv.Watches())
	})
}

// A writer that has become a reader leaves no mark: writers behind it would take the reader for gone.
func TestAWriterThatBecameAReaderLeavesNoMark(t *testing.T) {
	markBubble(t, func(t *testing.T, srv *zktest.Server) {
		all := line(t, srv, 4, func(i int) recipe.Queue {
			q := writer()
			if i == 2 {
				q.Kind = recipe.Read
			}
			return q
		})
		require.NoError(t, all[0].Leave(within(t, soon)))
		require.NoError(t, <-all[1].done)
		require.NoError(t, all[1].Downgrade(within(t, soon)))
		require.NoError(t, <-all[2].done, "the reader holds beside it")
		require.NoError(t, all[2].Leave(within(t, soon)))
		pending(t, all[3].done)
		require.NoError(t, all[1].Leave(within(t, soon)))
		require.NoError(t, <-all[3].done)
		require.NoError(t, all[3].Leave(within(t, soon)))
		requireLeft(t, srv, all)
	})
}

// Other clients' contenders leave no marks, and are not asked for any.
func TestAForeignPredecessorHasNoMark(t *testing.T) {
	for _, name := range []string{"_c_0123456789abcdef0123456789abcdef-lock-%010d", "0123456789abcdef0123456789abcdef__lock__%010d"} {
		markBubble(t, func(t *testing.T, srv *zktest.Server) {
			all := line(t, srv, 1, mutexes())
			foreign := path.Join("/l", fmt.Sprintf(name, 1))
			require.NoError(t, srv.Create(foreign, nil))
			s := open(t, srv)
			require.NoError(t, srv.SetSequence("/l", 2))
			ticket := enter(t, queue(), s)
			done := wait(ticket, within(t, time.Hour))
			pending(t, done)
			require.Zero(t, marksWatched(srv))
			require.NoError(t, srv.Delete(foreign))
			pending(t, done)
			require.NoError(t, all[0].Leave(within(t, soon)))
			require.NoError(t, <-done)
			require.NoError(t, ticket.Leave(within(t, soon)))
		})
	}
}

// A waiter whose context ends takes the watch on the mark with it.
func TestAWaitThatEndsLeavesNoWatchOnAMark(t *testing.T) {
	markBubble(t, func(t *testing.T, srv *zktest.Server) {
		all := line(t, srv, 2, mutexes())
		third := enter(t, queue(), open(t, srv))
		require.ErrorIs(t, third.Wait(within(t, time.Second)), context.DeadlineExceeded)
		synctest.Wait()
		require.Zero(t, marksWatched(srv))
		require.NoError(t, third.Leave(within(t, soon)))
		require.NoError(t, all[0].Leave(within(t, soon)))
		require.NoError(t, <-all[1].done)
		require.NoError(t, all[1].Leave(within(t, soon)))
		requireLeft(t, srv, all)
	})
}

// A ticket of several queues that gives up says of none of them that it held, not even of one in which it was first by then.
func TestSeveralPlacesThatAreGivenUpAreLeftWithoutMarks(t *testing.T) {
	markBubble(t, func(t *testing.T, srv *zktest.Server) {
		place := func(dirs ...string) placed {
			var queues []recipe.Queue
			for _, dir := range dirs {
				queues = append(queues, recipe.Queue{Dir: dir, Kind: recipe.Lock, ACL: session.WorldACL()})
			}
			s := open(t, srv)
			ticket, err := recipe.Enter(within(t, soon), s, queues...)
			require.NoError(t, err)
			return placed{ticket, ticket.Nodes()[0], wait(ticket, within(t, time.Hour)), s}
		}
		first, other := place("/a"), place("/b")
		require.NoError(t, <-first.done)
		require.NoError(t, <-other.done)
		several := place("/a", "/b")
		pending(t, several.done)
		behind := place("/a")
		pending(t, behind.done)
		require.NoError(t, several.Leave(within(t, soon)))
		pending(t, behind.done)
		require.NoError(t, first.Leave(within(t, soon)))
		require.NoError(t, <-behind.done)
	})
}

// Each mark uses up a number of the directory's counter. Where it passes its half, and its three quarters, one holds at a
// time, and the directory is renewed as soon as the line is empty.
func TestMarksAreMadeAcrossTheHalfAndTheThreeQuartersOfTheCounter(t *testing.T) {
	const half, three4 = 1 << 30, 3 << 29
	for name, counter := range map[string]int32{"half": half - 20, "three quarters": three4 - 20} {
		for _, version := range []zktest.Version{zktest.Version38, zktest.Version39} {
			t.Run(name+", "+string(version), func(t *testing.T) {
				markBubble(t, func(t *testing.T, srv *zktest.Server) {
					const clients, rounds = 6, 8
					require.NoError(t, srv.Create("/l", nil))
					require.NoError(t, srv.SetSequence("/l", counter))
					kind := mutexes()
					var holders, held atomic.Int32
					var all sync.WaitGroup
					for range clients {
						s := open(t, srv)
						all.Go(func() {
							for range rounds {
								ticket, err := recipe.Enter(t.Context(), s, kind(0))
								if err == nil {
									err = ticket.Wait(t.Context())
								}
								if err != nil {
									t.Error(err)
									return
								}
								if n := holders.Add(1); n != 1 {
									t.Errorf("%d hold", n)
								}
								held.Add(1)
								time.Sleep(time.Millisecond)
								holders.Add(-1)
								if err := ticket.Leave(t.Context()); err != nil {
									t.Error(err)
								}
							}
						})
					}
					all.Wait()
					require.EqualValues(t, clients*rounds, held.Load())
					time.Sleep(time.Minute)
					n, ok := srv.Node("/l")
					require.True(t, ok)
					require.Empty(t, srv.Children("/l"))
					require.Less(t, recipe.NewListing(nil, zk.Stat{Cversion: n.Stat.Cversion}).Counter, int32(half), "it is renewed")
				}, zktest.WithVersion(version))
			})
		}
	}
}
