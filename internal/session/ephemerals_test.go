package session_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// leastRoom is the room for ephemerals of a cramped session.
const leastRoom = 16 << 10

// cramped gives a session little room.
func cramped(c *session.Config) { c.JuteMaxBuffer = 2 * leastRoom }

// listed is what a session's ephemerals take in the transaction that ends it, as the server has
// them.
func listed(srv *zktest.Server, id int64) (bytes int) {
	ss, _ := srv.Session(id)
	for _, p := range ss.Ephemerals {
		bytes += len(p) + 4
	}
	return bytes
}

// fill makes ephemerals, with the longest names that the server accepts, until there is no room for
// another one.
func fill(t testing.TB, s *session.Session) (made []string) {
	t.Helper()
	for len(made) < 100 {
		m, err := s.Create(within(t, soon), "/"+strings.Repeat("f", 200)+"-", nil,
			session.EphemeralSequential, everybody)
		if errors.Is(err, session.ErrSessionFull) {
			return made
		}
		require.NoError(t, err)
		made = append(made, m.Path)
	}
	require.FailNow(t, "there is always room")
	return nil
}

func TestEveryCreateOfAnEphemeralBeyondTheRoomIsRefusedBeforeItLeaves(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		outer := open(t, srv)
		require.NoError(t,
			outer.CreateAll(within(t, soon), "/ch/root", nil, session.Persistent, everybody))
		s := openAt(t, srv.Addr()+"/ch/root", cramped, func(c *session.Config) {
			c.Dial = srv.Dial
		})
		ctx := within(t, soon)
		made := fill(t, s)
		require.Equal(t, listed(srv, s.ID()), s.EphemeralBytes(), "chroot and number included")
		require.Less(t, s.EphemeralBytes(), leastRoom)
		require.Greater(t, s.EphemeralBytes()+len("/ch/root")+len(made[0])+4, leastRoom,
			"all the room was used")

		before := srv.Requests()
		long := "/" + strings.Repeat("x", 300)
		ephemeral := session.OpCreate{Path: long, ACL: everybody, Mode: session.Ephemeral}
		lasting := session.OpCreate{Path: "/lasting", ACL: everybody}
		for name, create := range map[string]func() error{
			"Create": func() error {
				_, err := s.Create(ctx, long, nil, session.Ephemeral, everybody)
				return err
			},
			"CreateAndList": func() error {
				_, _, err := createAndList(ctx, s, long, nil, session.EphemeralSequential,
					everybody)
				return err
			},
			"Multi": func() error {
				_, err := s.Multi(ctx, lasting, ephemeral)
				return err
			},
			"TransactAndList": func() error {
				_, _,
					err := transactAndList(ctx, s, []session.Op{ephemeral}, []string{"/"})
				return err
			},
		} {
			err := create()
			require.ErrorIs(t, err, session.ErrSessionFull, name)
			require.NotErrorIs(t, err, session.ErrUnknownOutcome, name)
			require.ErrorContains(t, err, "jute.maxbuffer", name)
			require.ErrorContains(t, err,
				fmt.Sprintf("%d of %d are used", s.EphemeralBytes(), leastRoom), name)
		}
		require.Equal(t, before, srv.Requests())

		_, err := s.Create(ctx, "/lasting", nil, session.Persistent, everybody)
		require.NoError(t, err, "what outlives the session is not in its list")
		require.NoError(t, s.Delete(ctx, made[0], -1))
		_, err = s.Create(ctx, "/"+strings.Repeat("y", 150), nil, session.Ephemeral, everybody)
		require.NoError(t, err, "a deletion gives room")
		require.NoError(t, s.Close())
		require.NoError(t, srv.Failure())
	})
}

func TestRoomComesBackWhenTheEnsembleSaysThatThereIsNoSuchEphemeral(t *testing.T) {
	for name, again := range map[string]func(ctx context.Context, s *session.Session,
		srv *zktest.Server, path string) error{
		"deleted": func(ctx context.Context, s *session.Session, _ *zktest.Server,
			path string) error {
			return s.Delete(ctx, path, -1)
		},
		"deleted in a transaction": func(ctx context.Context, s *session.Session, _ *zktest.Server,
			path string) error {
			_, err := s.Multi(ctx, session.OpDelete{Path: path, Version: -1})
			return err
		},
		"found deleted by a delete": func(ctx context.Context, s *session.Session,
			srv *zktest.Server, path string) error {
			srv.Delete("/chroot" + path)
			return s.Delete(ctx, path, -1)
		},
		"found deleted by a read": func(ctx context.Context, s *session.Session, srv *zktest.Server,
			path string) error {
			srv.Delete("/chroot" + path)
			_, err := s.Exists(ctx, path)
			return err
		},
		"found deleted by a check in a transaction": func(ctx context.Context, s *session.Session,
			srv *zktest.Server, path string) error {
			srv.Delete("/chroot" + path)
			_, err := s.Multi(ctx,
				session.OpCreate{Path: "/e", ACL: everybody, Mode: session.Ephemeral},
				session.OpCheck{Path: path, Version: -1})
			return err
		},
		"found deleted by a watch": func(ctx context.Context, s *session.Session,
			srv *zktest.Server, path string) error {
			srv.Delete("/chroot" + path)
			w, err := s.Watch(ctx, path)
			if err == nil {
				w.Close()
			}
			return err
		},
		"deleted by somebody else, and told by a watch": func(ctx context.Context,
			s *session.Session, srv *zktest.Server, path string) error {
			w, err := s.Watch(ctx, path)
			if err != nil {
				return err
			}
			srv.Delete("/chroot" + path)
			<-session.Fired(w)
			return nil
		},
		"made and deleted in a transaction": func(ctx context.Context, s *session.Session,
			_ *zktest.Server, path string) error {
			_, err := s.Multi(ctx,
				session.OpCreate{Path: "/e", ACL: everybody, Mode: session.Ephemeral},
				session.OpDelete{Path: "/e", Version: -1}, session.OpDelete{Path: path,
					Version: -1})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *zktest.Server) {
				s := openAt(t, srv.Addr()+"/chroot", func(c *session.Config) { c.Dial = srv.Dial })
				ctx := within(t, soon)
				require.NoError(t, s.CreateAll(ctx, "/", nil, session.Persistent, everybody))
				made, err := s.Create(ctx, "/node-", nil, session.EphemeralSequential, everybody)
				require.NoError(t, err)
				require.Equal(t, len("/chroot/node-0123456789")+4, s.EphemeralBytes())
				if err := again(ctx, s, srv, made.Path); err != nil {
					require.ErrorIs(t, err, zk.ErrNoNode)
				}
				require.Empty(t, listed(srv, s.ID()))
				require.Zero(t, s.EphemeralBytes())
			})
		})
	}
}

func TestACreateOfUnknownOutcomeKeepsItsRoomUntilItIsFoundOut(t *testing.T) {
	for _, carriedOut := range []bool{true, false} {
		bubble(t, func(t *testing.T, srv *zktest.Server) {
			s := open(t, srv)
			ctx := within(t, soon)
			lose := func(path string) {
				failure := fault.CloseBefore()
				if carriedOut {
					failure = fault.CloseAfter()
				}
				srv.Inject(failure.Op(fault.OpCreate).Path(path + "*").Once())
			}
			lose("/line-")
			_, err := s.Create(ctx, "/line-", nil, session.EphemeralSequential, everybody)
			require.ErrorIs(t, err, session.ErrUnknownOutcome)
			require.Equal(t, len("/line--2147483648")+4, s.EphemeralBytes())
			lose("/exact")
			_, err = s.Create(ctx, "/exact", nil, session.Ephemeral, everybody)
			require.ErrorIs(t, err, session.ErrUnknownOutcome)
			require.NoError(t, s.Sync(ctx, "/"))
			require.GreaterOrEqual(t, s.EphemeralBytes(), listed(srv, s.ID()))

			if err := s.Delete(ctx, "/exact", -1); err != nil {
				require.ErrorIs(t, err, zk.ErrNoNode)
			}
			var found session.Created
			if ss, _ := srv.Session(s.ID()); carriedOut {
				require.Len(t, ss.Ephemerals, 1)
				found.Path = ss.Ephemerals[0]
			}
			s.Found("/line-", found.Path, found.Czxid)
			require.Equal(t, listed(srv, s.ID()), s.EphemeralBytes())
			if carriedOut {
				require.NoError(t, s.Delete(ctx, found.Path, -1))
			}
			require.Zero(t, s.EphemeralBytes())
		})
	}
}

func TestAnAnswerOfAServerInTroubleSaysNothingAboutTheCreate(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		srv.Inject(fault.Answer(-1).Op(fault.OpCreate).Once()) // ZooKeeper's "system error"
		_, err := s.Create(within(t, soon), "/n-", nil, session.EphemeralSequential, everybody)
		require.Error(t, err)
		require.NotZero(t, s.EphemeralBytes())
		s.Found("/n-", "", 0)
		require.Zero(t, s.EphemeralBytes())
	})
}

// Random creates, deletions by this session and by others, reads and watches, while replies are
// lost: the count is never lower than what exists, and is exact in the end, when every znode has
// been looked at.
func TestNoFewerEphemeralZnodesAreCountedThanStand(t *testing.T) {
	locktest.EachSeed(t, 20, func(t *testing.T, seed uint64) {
		bubble(t, func(t *testing.T, srv *zktest.Server) {
			r := rand.New(rand.NewPCG(seed, 1))
			s := open(t, srv, cramped)
			ctx := within(t, time.Hour)
			known := map[string]bool{}
			for step := range 400 {
				if r.IntN(10) == 0 {
					faults := []fault.Fault{fault.CloseAfter(), fault.CloseBefore(),
						fault.Answer(fault.CodeNoAuth)}
					srv.Inject(faults[r.IntN(3)].Op(fault.OpCreate, fault.OpDelete,
						fault.OpMulti).Once())
				}
				numbered := fmt.Sprintf("/%s-%d-", strings.Repeat("n", r.IntN(200)), step)
				exact := fmt.Sprintf("/exact-%d", r.IntN(10))
				some := exact
				if all := slices.Sorted(maps.Keys(known)); len(all) > 0 {
					some = all[r.IntN(len(all))]
				}
				var err error
				switch r.IntN(8) {
				case 0, 1, 2:
					var made session.Created
					made, err = s.Create(ctx, numbered, nil, session.EphemeralSequential, everybody)
					if errors.Is(err, session.ErrUnknownOutcome) {
						require.NoError(t, s.Sync(ctx, "/"))
						names, _, err := s.List(ctx, "/")
						require.NoError(t, err)
						for _, name := range names {
							if strings.HasPrefix("/"+name, numbered) {
								made.Path = "/" + name
							}
						}
						s.Found(numbered, made.Path, made.Czxid)
					}
					if made.Path != "" {
						known[made.Path] = true
					}
				case 3:
					_, err = s.Create(ctx, exact, nil, session.Ephemeral, everybody)
					known[exact] = true
				case 4:
					err = s.Delete(ctx, some, -1)
				case 5:
					_, err = s.Multi(ctx,
						session.OpCreate{Path: exact, ACL: everybody, Mode: session.Ephemeral},
						session.OpDelete{Path: exact, Version: -1})
					known[exact] = true
				case 6:
					srv.Delete(exact)
				case 7:
					_, err = s.Exists(ctx, exact)
				}
				_ = err // any error: only what exists matters
				require.GreaterOrEqual(t, s.EphemeralBytes(), listed(srv, s.ID()), "step %d", step)
				require.LessOrEqual(t, s.EphemeralBytes(), leastRoom)
			}
			for _, path := range slices.Sorted(maps.Keys(known)) {
				for {
					if err := s.Delete(ctx, path, -1); err == nil || errors.Is(err, zk.ErrNoNode) {
						break
					}
				}
			}
			require.Zero(t, listed(srv, s.ID()))
			require.Zero(t, s.EphemeralBytes())
		})
	})
}
