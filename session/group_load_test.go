package session_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/trusted"
	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zktest"
)

// Many calls make and delete contenders at once. Contexts end and connections break at any moment; some directories are
// missing, and one is closed to us. Whatever a call was told is what the tree shows, no call hangs, and nothing is left.
func TestWhatCallsAreToldOfTheirMembersIsWhatTheTreeShows(t *testing.T) {
	seeds := uint64(20)
	if os.Getenv("ZKLOCK_LONG") != "" {
		seeds = 300
	}
	for _, version := range []zktest.Version{zktest.Version38, zktest.Version39} {
		for seed := range seeds {
			if !t.Run(fmt.Sprint(version, " ", seed), func(t *testing.T) {
				bubble(t, func(t *testing.T, srv *zktest.Server) { newCrush(t, srv, seed).run() }, zktest.WithVersion(version))
			}) {
				return
			}
		}
	}
}

const (
	crushCallers = 40
	crushSteps   = 6 // of each
	crushDirs    = 10
)

// slowConn takes a moment for everything, so that requests come together.
type slowConn struct{ net.Conn }

func (c slowConn) Write(b []byte) (int, error) {
	time.Sleep(rand.N(time.Millisecond))
	return c.Conn.Write(b)
}

func (c slowConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	time.Sleep(rand.N(2 * time.Millisecond))
	return n, err
}

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
	c.Session = open(t, srv, func(conf *session.Config) {
		conf.Dial = func(network, addr string, timeout time.Duration) (net.Conn, error) {
			conn, err := srv.Dial(network, addr, timeout)
			return slowConn{conn}, err
		}
	})
	for i := range crushDirs {
		require.NoError(t, srv.Create(dir(i), nil))
	}
	_, err := c.Create(t.Context(), "/closed", nil, session.Persistent, zk.WorldACL(zk.PermRead))
	require.NoError(t, err)
	return c
}

func (c *crush) run() {
	var callers sync.WaitGroup
	for i := range crushCallers {
		callers.Go(func() {
			rnd := rand.New(rand.NewPCG(c.seed, uint64(i)))
			for step := range crushSteps {
				time.Sleep(time.Duration(rnd.IntN(3)) * time.Millisecond)
				c.step(rnd, fmt.Sprintf("%d-%d-", i, step))
			}
		})
	}
	quiet := make(chan struct{})
	var trouble sync.WaitGroup
	trouble.Go(func() { c.trouble(quiet) })
	callers.Wait()
	close(quiet)
	trouble.Wait()
	c.settle()
}

// trouble breaks connections, and has transactions fail, until quiet is closed.
func (c *crush) trouble(quiet <-chan struct{}) {
	rnd := rand.New(rand.NewPCG(c.seed, 1<<32))
	faults := []zktest.Fault{zktest.CloseAfter(), zktest.CloseBefore(), zktest.AnswerInside(zktest.CodeSessionMoved),
		zktest.AnswerInside(zktest.CodeOperationTimeout), zktest.Answer(zktest.CodeConnectionLoss)}
	for {
		in := c.srv.Inject(faults[rnd.IntN(len(faults))].Op(zktest.OpMulti).After(rnd.IntN(3)).Once())
		select {
		case <-quiet:
			in.Remove()
			return
		case <-time.After(time.Duration(rnd.IntN(50)) * time.Millisecond):
		}
		in.Remove()
		if rnd.IntN(3) == 0 {
			c.srv.DropConnections()
		}
	}
}

// step makes a contender or two, and deletes them.
func (c *crush) step(rnd *rand.Rand, id string) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if rnd.IntN(3) == 0 {
		stop := time.AfterFunc(time.Duration(rnd.IntN(8))*time.Millisecond, cancel)
		defer stop.Stop()
	}
	where := []string{dir(rnd.IntN(crushDirs))}
	switch rnd.IntN(8) {
	case 0:
		where[0] = "/none"
	case 1:
		where[0] = "/closed"
	case 2:
		where[0] = fmt.Sprint("/new", rnd.IntN(4))
		if rnd.IntN(4) == 0 {
			err := c.CreateAllGrouped(ctx, trusted.Caller{}, where[0], nil, session.Persistent, everybody)
			c.requireCauseOf(err, ctx)
		}
	case 3:
		where = append(where, dir((rnd.IntN(crushDirs-1)+1+slices.Index(dirs(crushDirs), where[0]))%crushDirs))
	}
	made := c.enter(ctx, where, id)
	if len(made) == 0 {
		return
	}
	ctx, cancel = context.WithCancel(context.Background())
	defer cancel()
	if rnd.IntN(3) == 0 {
		stop := time.AfterFunc(time.Duration(rnd.IntN(4))*time.Millisecond, cancel)
		defer stop.Stop()
	}
	c.leave(ctx, made, false)
}

// requireCauseOf demands that an error is one that broken connections and the end of ctx can cause.
func (c *crush) requireCauseOf(err error, ctx context.Context) {
	if err != nil && !errors.Is(err, session.ErrUnknownOutcome) && (ctx.Err() == nil || !errors.Is(err, ctx.Err())) {
		c.t.Errorf("%v", err)
	}
}

// enter makes a contender in each directory, and checks what it is told.
func (c *crush) enter(ctx context.Context, where []string, id string) (made []string) {
	b := c.Grouped(trusted.Caller{})
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
		var ops []any
		for _, d := range where {
			ops = append(ops, &zk.CreateRequest{Path: d + "/" + id, Data: []byte(id), Acl: everybody, Flags: int32(session.EphemeralSequential)})
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

// isMade checks that a contender stands that a call has been told of.
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

// notMade notes a create that has failed.
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

// leave deletes znodes, one or several in one transaction. doubt: that may have been done already.
func (c *crush) leave(ctx context.Context, znodes []string, doubt bool) {
	for {
		b := c.Grouped(trusted.Caller{})
		if len(znodes) == 1 {
			b.Delete(znodes[0], -1)
		} else {
			b.Multi(&zk.DeleteRequest{Path: znodes[0], Version: -1}, &zk.DeleteRequest{Path: znodes[1], Version: -1})
		}
		err := b.Do(ctx)
		if doubt && errors.Is(err, zk.ErrNoNode) && len(znodes) > 1 { // of the first: each has to be asked for
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
		c.ForLocks(trusted.Caller{}).Found(id, "", 0)
	}
	require.Empty(c.t, left)
	require.Zero(c.t, c.EphemeralBytes())
	require.NotZero(c.t, c.srv.Requests()[zktest.OpMulti])
}
