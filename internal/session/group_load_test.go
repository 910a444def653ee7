package session_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// Many calls make and delete contenders at once. Contexts end and connections break at any moment; some directories are
// missing, and one refuses us access. Every result agrees with the tree, no call hangs, and no znode is left.
func TestEveryMembersResultAgreesWithTheTree(t *testing.T) {
	locktest.Seeds(t, 20, func(t *testing.T, srv *zktest.Server, seed uint64) { newCrush(t, srv, seed).run() })
}

const crushDirs = 10

// crush is a session with many callers.
type crush struct {
	*session.Session
	t    *testing.T
	srv  *zktest.Server
	seed uint64

	mu      sync.Mutex
	refused []string            // paths, without the number, of creates that were certainly not carried out
	unknown []string            // of those whose outcome the caller does not know
	czxids  map[string][]string // the contenders of a directory and transaction
}

func newCrush(t *testing.T, srv *zktest.Server, seed uint64) *crush {
	c := &crush{t: t, srv: srv, seed: seed, czxids: map[string][]string{}}
	c.Session = open(t, srv, func(conf *session.Config) { conf.Dial = locktest.SlowDial(srv, seed) })
	for i := range crushDirs {
		require.NoError(t, srv.Create(dir(i), nil))
	}
	_, err := c.Create(t.Context(), "/closed", nil, session.Persistent, zk.WorldACL(zk.PermRead))
	require.NoError(t, err)
	return c
}

func (c *crush) run() {
	locktest.Load{Server: c.srv, Seed: c.seed, Callers: 40, Turns: 6, Skip: 3, Every: 50 * time.Millisecond, Drop: 3,
		Faults: []fault.Fault{fault.CloseAfter().Op(fault.OpMulti), fault.CloseBefore().Op(fault.OpMulti),
			fault.AnswerInside(fault.CodeSessionMoved).Op(fault.OpMulti)},
	}.Run(func(rnd *rand.Rand, caller, turn int) { c.step(rnd, fmt.Sprintf("%d-%d-", caller, turn)) })
	c.settle()
}

// step makes one or two contenders, and deletes them.
func (c *crush) step(rnd *rand.Rand, id string) {
	ctx, cancel := locktest.Perhaps(rnd, 8)
	defer cancel()
	where := []string{dir(rnd.IntN(crushDirs))}
	switch rnd.IntN(8) {
	case 0:
		where[0] = "/none"
	case 1:
		where[0] = "/closed"
	case 2:
		where[0] = fmt.Sprint("/new", rnd.IntN(4))
		if rnd.IntN(4) == 0 {
			err := c.CreateAllGrouped(ctx, where[0], nil, session.Persistent, everybody)
			c.requireCauseOf(err, ctx)
		}
	case 3:
		where = append(where, dir((rnd.IntN(crushDirs-1)+1+slices.Index(dirs(crushDirs), where[0]))%crushDirs))
	}
	made := c.enter(ctx, where, id)
	if len(made) == 0 {
		return
	}
	ctx, cancel = locktest.Perhaps(rnd, 4)
	defer cancel()
	c.leave(ctx, made, false)
}

// requireCauseOf requires an error to be one that broken connections or the end of ctx can cause.
func (c *crush) requireCauseOf(err error, ctx context.Context) {
	if err != nil && !errors.Is(err, session.ErrUnknownOutcome) && (ctx.Err() == nil || !errors.Is(err, ctx.Err())) {
		c.t.Errorf("%v", err)
	}
}

// enter makes a contender in each directory, and checks the result.
func (c *crush) enter(ctx context.Context, where []string, id string) (made []string) {
	b := c.Grouped()
	var err error
	var lists []*session.Result[session.Children]
	list := func() {
		for _, d := range where {
			lists = append(lists, b.List(d))
		}
		_ = b.Do(ctx) // the results say the same
	}
	var czxid int64
	if len(where) == 1 {
		r := b.Create(where[0]+"/"+id, []byte(id), session.EphemeralSequential, everybody)
		list()
		made, czxid, err = []string{r.Value.Path}, r.Value.Czxid, r.Err
	} else {
		var ops []session.Op
		for _, d := range where {
			ops = append(ops, session.OpCreate{Path: d + "/" + id, Data: []byte(id), ACL: everybody, Mode: session.EphemeralSequential})
		}
		r := b.Multi(ops...)
		list()
		for _, resp := range r.Value.Responses {
			made = append(made, resp.String)
		}
		czxid, err = r.Value.Zxid, r.Err
	}
	if err != nil {
		c.notMade(ctx, where, id, err)
		return nil
	}
	for i, d := range where {
		c.isMade(made[i], d, id, czxid)
		if l := lists[i]; l.Err == nil && !slices.Contains(l.Value.Names, path.Base(made[i])) {
			c.t.Errorf("%s is not in the list behind its create", made[i])
		} else {
			c.requireCauseOf(l.Err, ctx)
		}
	}
	return made
}

// isMade checks that a contender exists that a call has returned.
func (c *crush) isMade(znode, dir, id string, czxid int64) {
	node, stands := c.srv.Node(znode)
	if !stands || node.Stat.Czxid != czxid || string(node.Data) != id || node.Stat.EphemeralOwner != c.ID() || path.Dir(znode) != dir {
		c.t.Errorf("%s of %s in %s, made by %d: %v %+v", znode, id, dir, czxid, stands, node)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	key := fmt.Sprint(dir, " ", czxid)
	if c.czxids[key] = append(c.czxids[key], znode); len(c.czxids[key]) > 1 {
		c.t.Errorf("%v were made in one transaction", c.czxids[key])
	}
}

// notMade records a create that has failed.
func (c *crush) notMade(ctx context.Context, where []string, id string, err error) {
	switch {
	case errors.Is(err, zk.ErrNoNode) && (where[0] == "/none" || strings.HasPrefix(where[0], "/new")):
	case errors.Is(err, zk.ErrNoAuth) && where[0] == "/closed":
	default:
		c.requireCauseOf(err, ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range where {
		if errors.Is(err, session.ErrUnknownOutcome) {
			c.unknown = append(c.unknown, d+"/"+id)
		} else {
			c.refused = append(c.refused, d+"/"+id)
		}
	}
}

// leave deletes znodes, several in one transaction. doubt: they may have been deleted already.
func (c *crush) leave(ctx context.Context, znodes []string, doubt bool) {
	for {
		b := c.Grouped()
		if len(znodes) == 1 {
			b.Delete(znodes[0], -1)
		} else {
			b.Multi(session.OpDelete{Path: znodes[0], Version: -1}, session.OpDelete{Path: znodes[1], Version: -1})
		}
		err := b.Do(ctx)
		if doubt && errors.Is(err, zk.ErrNoNode) && len(znodes) > 1 { // only of the first: each has to be looked for
			for _, znode := range znodes {
				c.leave(context.Background(), []string{znode}, true)
			}
			return
		}
		if err == nil || doubt && errors.Is(err, zk.ErrNoNode) {
			break
		}
		c.requireCauseOf(err, ctx)
		if c.t.Failed() {
			return
		}
		doubt = doubt || errors.Is(err, session.ErrUnknownOutcome)
		ctx = context.Background()
	}
	for _, znode := range znodes {
		if _, stands := c.srv.Node(znode); stands {
			c.t.Errorf("%s was deleted, and stands", znode)
		}
	}
}

// settle checks what is left when all calls have ended.
func (c *crush) settle() {
	require.NoError(c.t, c.Sync(c.t.Context(), "/"))
	synctest.Wait()
	queued, pending := c.QueuedCalls()
	require.Zero(c.t, queued+pending)
	left := map[string]string{}
	for znode := range c.srv.Nodes() {
		if i := strings.LastIndexByte(znode, '-'); i >= 0 {
			require.NotContains(c.t, left, znode[:i+1], "made twice")
			left[znode[:i+1]] = znode
		}
	}
	for _, id := range c.refused {
		require.NotContains(c.t, left, id)
	}
	for _, id := range c.unknown {
		if znode, made := left[id]; made {
			require.NoError(c.t, c.Delete(c.t.Context(), znode, -1))
			delete(left, id)
		}
		c.Found(id, "", 0)
	}
	require.Empty(c.t, left)
	require.Zero(c.t, c.EphemeralBytes())
	require.NotZero(c.t, c.srv.Requests()[fault.OpMulti])
}
