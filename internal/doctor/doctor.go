// Package doctor examines an ensemble for use with locks: what each server is and allows, what the
// client may do at a path, how the servers' clocks differ, and what of that is unsafe, or will fail
// on the worst day.
//
//	report, err := doctor.Examine(ctx, "zk1:2181,zk2:2181,zk3:2181", doctor.Config{Path: "/locks"})
//	for _, f := range report.Findings {
//		log.Println(f.Severity, f.Server, f.Text)
//	}
//
// It leaves nothing behind: sessions that are closed, transactions that are refused by design, and
// one ephemeral znode below the path, which is deleted. Holds of other clients are not touched.
//
// What it can't tell it says. A server whose four-letter words and admin port are closed still
// tells its limits by what it grants; its version, tick and clock stay unknown.
package doctor

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/internal/session/failure"
)

// Config says what to examine. The zero value of each field stands for its default.
type Config struct {
	// Path is where the locks are: permissions are asked for there, or at the nearest znode above
	// it that exists. Below the chroot of the connect string. Default "/".
	Path string

	// Session is what the program asks of its sessions: credentials, TLS, limits, which are held
	// against the servers'.
	Session session.Config

	// AdminPort is the servers' HTTP port for administrators, asked where four-letter words are
	// closed. Default: not asked.
	AdminPort int

	// Patience bounds the examination of one server. Default 10 s.
	Patience time.Duration
}

// Report is what was found. Its JSON has durations in seconds.
type Report struct {
	Servers  []Server      `json:"servers"` // in the order of the connect string
	Access   Access        `json:"access"`
	Offset   *Offset       `json:"leader_clock,omitempty"` // the leader's clock, which dates znodes; nil: could not be read
	Asked    time.Duration `json:"-"`                      // the session timeout that the client asks for
	Findings []Finding     `json:"findings"`               // the gravest first

	// Longest are the ephemeral znodes of the session that has most, in bytes. It is nil if there
	// are none, or if they are unknown.
	Longest *Ephemerals `json:"longest_session,omitempty"`
}

// Server is what one server told, or showed. Zero values are unknown.
type Server struct {
	Addr    string `json:"addr"`
	Error   string `json:"error,omitempty"` // why it serves this client nothing
	Version string `json:"version,omitempty"`
	Mode    string `json:"mode,omitempty"` // leader, follower, observer, standalone, read-only

	Tick       time.Duration `json:"-"` // as configured
	MinTimeout time.Duration `json:"-"` // of sessions, as granted
	MaxTimeout time.Duration `json:"-"`
	finds      time.Duration // the tick that a client finds out here, unless it is given
	// Packet says that it takes requests as long as the client's packet limit. No word and no
	// command of the admin port tells its jute.maxbuffer; only JMX does.
	Packet bool `json:"packet_limit_taken"`

	Read   time.Duration `json:"-"`               // how long a read took
	Write  time.Duration `json:"-"`               // and a write
	Offset *Offset       `json:"clock,omitempty"` // the server's own clock

	// Unknown says what could not be found out, and why.
	Unknown []string `json:"unknown,omitempty"`
}

// Offset is by how much a clock is ahead of this machine's, give or take Error.
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
	Server   string   `json:"server,omitempty"` // host:port; empty: the ensemble
	Text     string   `json:"text"`
}

// atOnce bounds how many servers are examined at a time.
const atOnce = 8

// Examine examines the ensemble of the connect string. It blocks until every server has been asked,
// each for as long as Config.Patience, or until ctx ends. An error says that nothing could be
// examined: a connect string, path or option that can't work (session.ErrConfig, session.ErrPath),
// or the end of ctx. Servers that don't answer are findings.
func Examine(ctx context.Context, connect string, conf Config) (*Report, error) {
	x, err := newExamination(connect, conf)
	if err != nil {
		return nil, fmt.Errorf("doctor: %w", err)
	}
	r := &Report{Servers: make([]Server, len(x.servers)), Asked: x.Session.Timeout}
	if r.Asked == 0 {
		r.Asked = session.DefaultTimeout
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for i, addr := range x.servers {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			r.Servers[i] = x.server(ctx, addr)
		})
	}
	wg.Wait()
	for i := range r.Servers {
		if r.Servers[i].Error == "" {
			r.Access, r.Offset = x.access(ctx, r.Servers[i].Addr)
			r.Longest = x.ephemerals(ctx, &r.Servers[i])
			break
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("doctor: %w", failure.Ended(ctx, nil, fmt.Errorf("examining %s", connect)))
	}
	r.Findings = x.findings(r)
	return r, nil
}

// examination is one call of Examine.
type examination struct {
	Config
	servers []string
	chroot  string
}

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
	if err := session.CheckPath(x.Path); err != nil && x.Path != "/" {
		return nil, err
	}
	return x, nil
}
