package doctor_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/doctor"
	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/ensemble"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

var within = locktest.Within

func examine(t *testing.T, connect string, conf doctor.Config) *doctor.Report {
	t.Helper()
	r, err := doctor.Examine(within(t, time.Minute), connect, conf)
	require.NoError(t, err)
	for _, f := range r.Findings {
		t.Log(f.Severity, f.Server, f.Text)
	}
	return r
}

// found requires a finding of that severity with that text.
func found(t *testing.T, r *doctor.Report, s doctor.Severity, text string) {
	t.Helper()
	for _, f := range r.Findings {
		if f.Severity == s && strings.Contains(f.Server+" "+f.Text, text) {
			return
		}
	}
	require.Failf(t, "not found", "%s %q in %v", s, text, r.Findings)
}

func notFound(t *testing.T, r *doctor.Report, s doctor.Severity) {
	t.Helper()
	for _, f := range r.Findings {
		require.NotEqual(t, s, f.Severity, f.Text)
	}
}

func TestAServerTellsWhatItIsAndNothingIsLeftBehind(t *testing.T) {
	srv := zktest.Run(t)
	require.NoError(t, srv.Create("/locks", nil))
	r := examine(t, srv.Addr(), doctor.Config{Path: "/locks"})
	require.Len(t, r.Servers, 1)
	v := r.Servers[0]
	assert.Equal(t, "3.9.3", v.Version)
	assert.Equal(t, "standalone", v.Mode)
	assert.Equal(t, 2*time.Second, v.Tick)
	assert.Equal(t, 4*time.Second, v.MinTimeout)
	assert.Equal(t, 40*time.Second, v.MaxTimeout)
	assert.True(t, v.Packet)
	assert.Positive(t, v.Read)
	assert.Positive(t, v.Write)
	assert.Empty(t, v.Error)
	assert.Empty(t, v.Unknown)
	for _, o := range []*doctor.Offset{v.Offset, r.Offset} {
		require.NotNil(t, o)
		assert.LessOrEqual(t, o.Ahead.Abs(), o.Error+time.Millisecond, "the same machine")
	}
	assert.Equal(t, doctor.Access{
		Path:   "/locks",
		At:     "/locks",
		Read:   doctor.Granted,
		Create: doctor.Granted,
		Delete: doctor.Granted,
		Write:  doctor.Granted,
		Admin:  doctor.Granted,
	}, r.Access)
	notFound(t, r, doctor.Danger)

	require.NoError(t,
		srv.Await(within(t, 10*time.Second), func() bool { return len(srv.Sessions()) == 0 }))
	require.Empty(t, srv.Children("/locks"))
	_, err := json.Marshal(r)
	require.NoError(t, err)
}

func TestEachPermissionIsAskedForWithoutEffect(t *testing.T) {
	srv := zktest.Run(t)
	ctx := within(t, time.Minute)
	admin, err := session.Open(ctx, srv.Addr(), session.Config{})
	require.NoError(t, err)
	defer admin.Close()
	for perm, refused := range map[int32]func(doctor.Access) doctor.Verdict{
		zk.PermRead:   func(a doctor.Access) doctor.Verdict { return a.Read },
		zk.PermCreate: func(a doctor.Access) doctor.Verdict { return a.Create },
		zk.PermDelete: func(a doctor.Access) doctor.Verdict { return a.Delete },
		zk.PermWrite:  func(a doctor.Access) doctor.Verdict { return a.Write },
		zk.PermAdmin:  func(a doctor.Access) doctor.Verdict { return a.Admin },
	} {
		path := fmt.Sprintf("/without-%d", perm)
		_, err := admin.Create(ctx, path, []byte("data"), session.Persistent,
			zk.WorldACL(zk.PermAll&^perm))
		require.NoError(t, err)
		a := examine(t, srv.Addr(), doctor.Config{Path: path}).Access
		assert.Equal(t, doctor.Refused, refused(a), path)
		others := 0
		for _, v := range []doctor.Verdict{a.Read, a.Write, a.Create, a.Delete, a.Admin} {
			if v == doctor.Granted {
				others++
			}
		}
		if perm == zk.PermCreate { // without CREATE nobody can try DELETE
			assert.Equal(t, doctor.Unknown, a.Delete)
			others++
		}
		assert.Equal(t, 4, others, "%s: %+v", path, a)
		require.Empty(t, srv.Children(path))
		node, ok := srv.Node(path)
		require.True(t, ok)
		assert.Equal(t, "data", string(node.Data))

		// This path only has to be made there.
		below := examine(t, srv.Addr(), doctor.Config{Path: path + "/locks"})
		if perm == zk.PermCreate {
			found(t, below, doctor.Danger, "CREATE is refused: no lock can be taken")
		} else {
			notFound(t, below, doctor.Danger)
		}
	}
}

func TestEveryUnsafeSettingIsFound(t *testing.T) {
	twoSeconds := doctor.Config{Session: session.Config{TickTime: 2 * time.Second}}
	with := func(opts ...zktest.Option) []zktest.Option { return opts }
	asking := func(timeout time.Duration) doctor.Config {
		return doctor.Config{Session: session.Config{Timeout: timeout}}
	}
	for name, c := range map[string]struct {
		server []zktest.Option
		conf   doctor.Config
		s      doctor.Severity
		text   string
	}{
		"a tick that is longer than assumed": {
			with(zktest.WithTick(3 * time.Second)), twoSeconds,
			doctor.Danger, "its tickTime is 3s, and the client assumes 2s: " +
				"two clients may hold one lock. Give WithTickTime (--tick) 3s",
		},
		"a tick that is longer than is measured": {
			with(zktest.WithSessionTimeouts(time.Second, 40*time.Second)), doctor.Config{},
			doctor.Danger, "its tickTime is 2s, and the client assumes 500ms, " +
				"half of its minSessionTimeout: two clients may hold one lock",
		},
		"a shorter tick than is assumed": {
			with(zktest.WithTick(500 * time.Millisecond)), twoSeconds,
			doctor.Note, "and the client assumes 2s: " +
				"leases last longer if WithTickTime (--tick) is 500ms",
		},
		"a shorter tick than is measured": {
			with(zktest.WithSessionTimeouts(8*time.Second, 40*time.Second)), doctor.Config{},
			doctor.Note, "and the client assumes 4s, half of its minSessionTimeout: " +
				"leases last longer if WithTickTime (--tick) is 2s",
		},
		"a minimum below two ticks": {
			with(zktest.WithSessionTimeouts(time.Second, 40*time.Second)), twoSeconds,
			doctor.Warning, "minSessionTimeout of 1s is below two ticks of 2s",
		},
		"small packets": {
			with(zktest.WithJuteMaxBuffer(1 << 16)), doctor.Config{},
			doctor.Danger, "takes no request of 1048575 bytes",
		},
		"the release": {
			with(zktest.WithVersion(zktest.Version38)), doctor.Config{},
			doctor.Warning, "can lose acknowledged writes, and with them locks, " +
				"unless its distributor has fixed that: run 3.9.4 or later",
		},
		"another timeout": {
			nil, asking(time.Minute),
			doctor.Note, "grants a session timeout of 40s, not the 1m0s",
		},
		"a timeout of few ticks": {
			nil, asking(6 * time.Second),
			doctor.Warning, "below four ticks",
		},
		"a path that is not there": {
			nil, doctor.Config{Path: "/a/b/c"},
			doctor.Note, "/a/b/c does not exist; the first lock makes it below /",
		},
	} {
		t.Run(name, func(t *testing.T) {
			srv := zktest.Run(t, c.server...)
			found(t, examine(t, srv.Addr(), c.conf), c.s, c.text)
		})
	}
}

func TestDoctorTriesThePacketLimitThatItIsGiven(t *testing.T) {
	srv := zktest.Run(t, zktest.WithJuteMaxBuffer(1<<16))
	for bytes, taken := range map[int]bool{1 << 16: true, 1<<16 + 1: false} {
		r := examine(t, srv.Addr(), doctor.Config{Session: session.Config{JuteMaxBuffer: bytes}})
		assert.Equal(t, taken, r.Servers[0].Packet, "%d bytes", bytes)
	}
}

// A server also hangs up when it stops.
func TestAServerThatHangsUpOnceIsAskedAgainWhetherItTakesThePacketLimit(t *testing.T) {
	srv := zktest.Run(t)
	srv.Inject(fault.CloseBefore().Op(fault.OpExists).Once())
	r := examine(t, srv.Addr(), doctor.Config{})
	assert.True(t, r.Servers[0].Packet)
	notFound(t, r, doctor.Danger)
}

func TestALeadersClockThatCanNotBeReadIsNoTroubleWithThePermissions(t *testing.T) {
	srv := zktest.Run(t)
	srv.Inject(fault.Answer(fault.CodeOperationTimeout).Op(fault.OpCreate))
	r := examine(t, srv.Addr(), doctor.Config{Path: "/locks"})
	assert.Empty(t, r.Access.Error)
	assert.Nil(t, r.Offset)
	found(t, r, doctor.Note, "/locks does not exist")
	found(t, r, doctor.Note, "can't tell leader's clock: ")
	notFound(t, r, doctor.Danger)
}

// Servers with local sessions that may not be upgraded end the session that makes an ephemeral
// znode in a transaction.
func TestLocalSessionsThatCanNotBeUpgradedAreFound(t *testing.T) {
	srv := zktest.Run(t)
	srv.Inject(fault.Answer(fault.CodeSessionExpired).Op(fault.OpMulti))
	found(t, examine(t, srv.Addr(), doctor.Config{}), doctor.Warning,
		"localSessionsUpgradingEnabled has to be true")
}

func TestUnequalServersAndOnesThatAreDownAreFound(t *testing.T) {
	srv := zktest.Run(t)
	f, err := srv.Follower()
	require.NoError(t, err)
	f.LimitSessions(4*time.Second, 20*time.Second)
	down := "127.0.0.1:" + ensemble.Port(t)
	r := examine(t, srv.Addr()+","+f.Addr()+","+down, doctor.Config{})
	require.Len(t, r.Servers, 3)
	assert.Equal(t, []string{"leader", "follower", ""},
		[]string{r.Servers[0].Mode, r.Servers[1].Mode, r.Servers[2].Mode})
	found(t, r, doctor.Danger, "servers differ in maxSessionTimeout")
	found(t, r, doctor.Warning, down+" does not serve this client: connection refused")
}

func TestAnEnsembleThatServesNoClientIsFound(t *testing.T) {
	srv := zktest.Run(t)
	srv.Inject(fault.CloseBefore().Op(fault.OpConnect))
	r := examine(t, srv.Addr()+"/nowhere", doctor.Config{Patience: 2 * time.Second})
	found(t, r, doctor.Danger, "no server serves this client")
}

// refusing starts a server that closes every connection for a session, and answers four-letter
// words: those that are not in answers as a server that does not allow them.
func refusing(t *testing.T, answers map[string]string) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ended := make(chan struct{})
	go func() { // ends with the listener
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			word := make([]byte, 4)
			if _, err := io.ReadFull(c, word); err == nil && word[0] >= 'a' {
				answer, ok := answers[string(word)]
				if !ok {
					answer = string(word) + " is not executed because it is not in the whitelist.\n"
				}
				_, _ = io.WriteString(c, answer)
			}
			_ = c.Close()
		}
	}()
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		<-ended
	})
	return l.Addr().String()
}

func TestAServerThatRefusesSessionsIsFoundWithTheReasonThatItGives(t *testing.T) {
	const (
		idle   = "This ZooKeeper instance is not currently serving requests\n"
		lonely = "Zookeeper version: 3.9.3-x, built on y\nMode: read-only\nNode count: 5\n"
		quorum = "the server serves no requests: it has no quorum"
		reads  = "the server is read-only: it has no quorum, " +
			"and serves only clients that ask for reads alone"
		guesses = "closed the connection without an answer to the handshake: " +
			"no quorum, too many clients, or a port that wants TLS?"
	)
	for name, c := range map[string]struct {
		answers map[string]string
		reason  string
		mode    string
	}{
		"no quorum":                 {map[string]string{"srvr": idle, "conf": idle}, quorum, ""},
		"read-only":                 {map[string]string{"srvr": lonely}, reads, "read-only"},
		"read-only, srvr is closed": {map[string]string{"isro": "ro"}, reads, "read-only"},
		"every word is closed":      {nil, guesses, ""},
	} {
		t.Run(name, func(t *testing.T) {
			addr := refusing(t, c.answers)
			r := examine(t, addr, doctor.Config{Patience: 5 * time.Second})
			assert.Equal(t, c.reason, r.Servers[0].Error)
			assert.Equal(t, c.mode, r.Servers[0].Mode)
			found(t, r, doctor.Warning, addr+" does not serve this client: "+c.reason)
			found(t, r, doctor.Danger, "no server serves this client")
		})
	}
}

func TestASessionWithTooManyEphemeralsIsFound(t *testing.T) {
	srv := zktest.Run(t)
	ctx := within(t, time.Minute)
	s, err := session.Open(ctx, srv.Addr(), session.Config{})
	require.NoError(t, err)
	defer s.Close()
	require.Nil(t, examine(t, srv.Addr(), doctor.Config{}).Longest)
	paths := []string{"/a", "/" + strings.Repeat("b", 1000), "/" + strings.Repeat("c", 2000)}
	list := 4
	for _, p := range paths {
		_, err := s.Create(ctx, p, nil, session.Ephemeral, session.WorldACL())
		require.NoError(t, err)
		list += 4 + len(p)
	}
	for limit, severity := range map[int]doctor.Severity{
		list - 1:   doctor.Warning,
		list/2 - 1: doctor.Danger,
	} {
		r := examine(t, srv.Addr(), doctor.Config{Session: session.Config{JuteMaxBuffer: limit}})
		require.Equal(t, &doctor.Ephemerals{Session: s.ID(), Count: 3, Bytes: list}, r.Longest)
		found(t, r, severity, "has 3 ephemeral znodes")
	}
}

func TestClocksThatAreApartAreFound(t *testing.T) {
	srv := zktest.Run(t)
	f, err := srv.Follower()
	require.NoError(t, err)
	ahead := func(network, addr string, timeout time.Duration) (net.Conn, error) {
		conn, err := net.DialTimeout(network, addr, timeout)
		if addr != f.Addr() {
			return conn, err
		}
		return &fast{Conn: conn}, err
	}
	r := examine(t, srv.Addr()+","+f.Addr(), doctor.Config{Session: session.Config{Dial: ahead}})
	found(t, r, doctor.Warning, "the clock of "+f.Addr()+" is ")
}

// fast is a connection to a server whose clock is an hour ahead.
type fast struct {
	net.Conn
	answer *strings.Reader // to cons
}

var accepted = regexp.MustCompile(`est=\d+`)

func (c *fast) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if string(b) == "cons" {
		text, readErr := io.ReadAll(c.Conn)
		if readErr != nil {
			return n, readErr
		}
		changed := accepted.ReplaceAllStringFunc(string(text), func(est string) string {
			ms, _ := strconv.ParseInt(est[4:], 10, 64)
			return fmt.Sprintf("est=%d", ms+time.Hour.Milliseconds())
		})
		c.answer = strings.NewReader(changed)
	}
	return n, err
}

func (c *fast) Read(b []byte) (int, error) {
	if c.answer != nil {
		return c.answer.Read(b)
	}
	return c.Conn.Read(b)
}

func TestAPersistentZnodeWithAContendersNameIsFound(t *testing.T) {
	srv := zktest.Run(t)
	const name = "_c_00000000-0000-4000-8000-000000000000-lock-0000000000"
	for _, path := range []string{"/locks", "/locks/child", "/locks/" + name} {
		require.NoError(t, srv.Create(path, nil))
	}
	r := examine(t, srv.Addr(), doctor.Config{Path: "/locks"})
	require.Equal(t, []string{name}, r.Access.Persistent)
	found(t, r, doctor.Danger, "/locks: "+name+" is a persistent znode with a contender's name")
}

func TestAChrootThatDoesNotExistIsFound(t *testing.T) {
	srv := zktest.Run(t)
	r := examine(t, srv.Addr()+"/app", doctor.Config{Path: "/locks"})
	found(t, r, doctor.Danger, "the chroot /app does not exist: no lock can be taken")
	r = examine(t, srv.Addr()+"/app",
		doctor.Config{Path: "/locks", Session: session.Config{CreateChroot: true}})
	found(t, r, doctor.Note, "the chroot /app does not exist; the first lock makes it")
	notFound(t, r, doctor.Danger)
	require.Empty(t, srv.Children("/app"))
}

func TestTheAdminPortIsAskedWhereFourLetterWordsAreClosed(t *testing.T) {
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch req.URL.Path {
		case "/commands/server_stats":
			fmt.Fprint(w,
				`{"version":"3.9.4-abc, built on x","server_stats":{"server_state":"leader"}}`)
		case "/commands/configuration":
			fmt.Fprint(w, `{"tick_time":2000}`)
		default:
			http.NotFound(w, req)
		}
	}))
	defer admin.Close()
	_, text, err := net.SplitHostPort(admin.Listener.Addr().String())
	require.NoError(t, err)
	port, err := strconv.Atoi(text)
	require.NoError(t, err)

	srv := zktest.Run(t)
	words := func(network, addr string, timeout time.Duration) (net.Conn, error) {
		conn, err := net.DialTimeout(network, addr, timeout)
		return &wordless{Conn: conn}, err
	}
	r := examine(t, srv.Addr(),
		doctor.Config{Session: session.Config{Dial: words}, AdminPort: port})
	assert.Equal(t, "3.9.4", r.Servers[0].Version)
	assert.Equal(t, "leader", r.Servers[0].Mode)
	assert.Equal(t, 2*time.Second, r.Servers[0].Tick)

	r = examine(t, srv.Addr(), doctor.Config{Session: session.Config{Dial: words}})
	assert.Empty(t, r.Servers[0].Version)
	assert.Equal(t, 4*time.Second, r.Servers[0].MinTimeout, "as granted")
	found(t, r, doctor.Note, "can't tell version and mode: "+
		"four-letter word srvr is not in the server's 4lw.commands.whitelist")
	found(t, r, doctor.Note, "can't tell tick")
	found(t, r, doctor.Note, "can't tell clock")
}

// wordless is a connection to a server that has four-letter words closed.
type wordless struct {
	net.Conn
	answer io.Reader // to a word
}

func (c *wordless) Write(b []byte) (int, error) {
	if len(b) == 4 {
		c.answer = strings.NewReader(string(b) +
			" is not executed because it is not in the whitelist.")
		return 4, nil
	}
	return c.Conn.Write(b)
}

func (c *wordless) Read(b []byte) (int, error) {
	if c.answer != nil {
		return c.answer.Read(b)
	}
	return c.Conn.Read(b)
}

func TestAConfigThatCannotWorkIsRefusedBeforeAServerIsAsked(t *testing.T) {
	for _, c := range []struct {
		connect string
		conf    doctor.Config
		want    error
	}{
		{"", doctor.Config{}, session.ErrConfig},
		{"a:1", doctor.Config{Path: "locks"}, session.ErrPath},
	} {
		_, err := doctor.Examine(within(t, time.Second), c.connect, c.conf)
		require.ErrorIs(t, err, c.want)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := doctor.Examine(ctx, "127.0.0.1:1", doctor.Config{})
	require.ErrorIs(t, err, context.Canceled)
}
