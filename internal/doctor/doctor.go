// Package doctor examines an ensemble for use with locks: what each server is and allows, what the
// client may do at a path, how the servers' clocks differ, and what of that is unsafe, or will fail
// on the worst day.
//
//	conf := doctor.Config{Path: "/locks"}
//	report, err := doctor.Examine(ctx, "zk1:2181,zk2:2181,zk3:2181", conf)
//	for _, f := range report.Findings {
//		log.Println(f.Severity, f.Server, f.Text)
//	}
//
// It leaves nothing behind. It opens sessions, which it closes. It sends transactions, which are
// refused by design. It makes one ephemeral znode below the path, which it deletes. It does not
// touch the holds of other clients.
//
// The report says what could not be found out. A server whose four-letter words and admin port are
// closed still shows its limits by what it grants. Its version, tick and clock stay unknown.
package doctor

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/internal/session/failure"
)

// Config says what to examine. The zero value of each field stands for its default.
type Config struct {
	// Path is where the locks are, below the chroot of the connect string. The permissions are
	// examined there, or at the nearest znode above it that exists. Default "/".
	Path string

	// Session is what the program asks of its sessions: credentials, TLS and limits. The limits
	// are compared with the servers'.
	Session session.Config

	// AdminPort is the servers' HTTP port for administrators. It is asked if the four-letter words
	// of a server are closed. By default it is not.
	AdminPort int

	// Patience bounds the examination of one server. Default 10 s.
	Patience time.Duration
}

// Report is what was found. Its JSON has durations in seconds.
type Report struct {
	Servers  []Server      `json:"servers"` // in the order of the connect string
	Access   Access        `json:"access"`
	Offset   *Offset       `json:"leader_clock,omitempty"` // of the leader; nil if it is unknown
	Asked    time.Duration `json:"-"`                      // the session timeout of the client
	Findings []Finding     `json:"findings"`               // the gravest first

	// Longest are the ephemeral znodes of the session whose list of them uses the most bytes. It is
	// nil if there are none, or if they are unknown.
	Longest *Ephemerals `json:"longest_session,omitempty"`
}

// Server is what one server told, or showed. A field with the zero value is unknown.
type Server struct {
	Addr    string `json:"addr"`
	Error   string `json:"error,omitempty"` // why it serves this client nothing
	Version string `json:"version,omitempty"`
	Mode    string `json:"mode,omitempty"` // leader, follower, observer, standalone, read-only

	Tick       time.Duration `json:"-"` // as configured
	MinTimeout time.Duration `json:"-"` // of sessions, as granted
	MaxTimeout time.Duration `json:"-"`
	measured   time.Duration // half of MinTimeout: the tick that a client assumes by default

	// Packet says that the server takes requests as long as the client's packet limit. No
	// four-letter word and no command of the admin port tells its jute.maxbuffer; only JMX does.
	Packet bool `json:"packet_limit_taken"`

	Read   time.Duration `json:"-"`               // how long a read took
	Write  time.Duration `json:"-"`               // how long a write took
	Offset *Offset       `json:"clock,omitempty"` // the server's own clock

	// Unknown says what could not be found out, and why.
	Unknown []string `json:"unknown,omitempty"`
}

// Offset says how far a clock is ahead of this machine's, to within Error.
type Offset struct {
	Ahead time.Duration `json:"-"`
	Error time.Duration `json:"-"`
}

// Severity says how grave a finding is.
type Severity string

// Severities, the gravest first.
const (
	Danger  Severity = "danger"  // locks are not safe, or don't work
	Warning Severity = "warning" // something will fail on a bad day
	Note    Severity = "note"    // worth knowing
)

// Finding is something that the ensemble's owner should know.
type Finding struct {
	Severity Severity `json:"severity"`
	Server   string   `json:"server,omitempty"` // host:port; "" stands for the ensemble
	Text     string   `json:"text"`
}

// atOnce bounds how many servers are examined at a time.
const atOnce = 8

// Examine examines the ensemble of the connect string. It blocks for at most Config.Patience for
// each eight servers, and twice Patience after that, or until ctx ends. Servers that don't answer
// are findings.
//
// It returns an error if nothing could be examined:
//   - session.ErrConfig or session.ErrPath for a connect string, path or option that can't work;
//   - ctx's error if ctx ends.
func Examine(ctx context.Context, connect string, conf Config) (*Report, error) {
	x, err := newExamination(connect, conf)
	if err != nil {
		return nil, fmt.Errorf("doctor: %w", err)
	}
	r := &Report{Servers: make([]Server, len(x.servers)), Asked: x.Session.Timeout}
	if r.Asked == 0 {
		r.Asked = session.DefaultTimeout
	}
	x.askAll(ctx, r.Servers)
	// What is the same on all servers, the first one that serves tells.
	if i := slices.IndexFunc(r.Servers, Server.serves); i >= 0 {
		v := &r.Servers[i]
		r.Access, r.Offset = x.access(ctx, v)
		r.Longest = x.ephemerals(ctx, v)
	}
	if ctx.Err() != nil {
		err := failure.Ended(ctx, nil, fmt.Errorf("examining %s", connect))
		return nil, fmt.Errorf("doctor: %w", err)
	}
	r.Findings = x.findings(r)
	return r, nil
}

// askAll examines each server, at most atOnce at a time, and puts the results into found.
func (x *examination) askAll(ctx context.Context, found []Server) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for i, addr := range x.servers {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			found[i] = x.server(ctx, addr)
		})
	}
	wg.Wait()
}

// serves reports whether the server serves this client.
func (v Server) serves() bool { return v.Error == "" }

// examination is one call of Examine.
type examination struct {
	Config
	servers []string
	chroot  string
}

// newExamination fills in the defaults, and checks the connect string and the path.
func newExamination(connect string, conf Config) (*examination, error) {
	x := &examination{Config: conf}
	if x.Path == "" {
		x.Path = "/"
	}
	if x.Patience <= 0 {
		x.Patience = 10 * time.Second
	}
	var err error
	if x.servers, x.chroot, err = session.ParseConnect(connect); err != nil {
		return nil, err
	}
	if err := session.CheckPath(x.Path); err != nil {
		return nil, err
	}
	return x, nil
}
