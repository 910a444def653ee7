package doctor

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/text"
)

// server examines one server, within x.Patience.
func (x *examination) server(ctx context.Context, addr string) Server {
	ctx, cancel := context.WithTimeout(ctx, x.Patience)
	defer cancel()
	v := Server{Addr: addr}
	err := x.limits(ctx, &v)
	refusal := x.words(ctx, &v) // also of a server that refuses sessions: they may say why
	if err == nil {
		err = x.speed(ctx, &v)
	} else if refusal == nil {
		refusal = x.readOnly(ctx, &v)
	}
	v.Error = said(because(refusal, err))
	return v
}

// because returns why a server serves nothing, or nil if it serves. refusal is the reason that the
// server gives itself, or nil, and err is the error of an attempt to use it.
//
// A server that refuses sessions closes their connections, and names its reason only in answers to
// four-letter words. If that reason is known, the guesses of failure.ErrUnanswered would mislead.
func because(refusal, err error) error {
	switch {
	case err == nil, refusal == nil:
		return err
	case errors.Is(err, failure.ErrUnanswered):
		return refusal
	}
	return fmt.Errorf("%w (%w)", refusal, err)
}

// said returns an error as a report has it, or "" for nil.
func said(err error) string {
	if err == nil {
		return ""
	}
	return text.Foreign(strings.ReplaceAll(err.Error(), "\n", "; ")) // joined errors
}

// limits finds out the server's limits by what it grants, and reads its clock. It opens two or
// three sessions for that, which make no znodes.
func (x *examination) limits(ctx context.Context, v *Server) error {
	short, err := session.OpenProbe(ctx, x.Session, v.Addr, time.Millisecond)
	if err != nil {
		return err
	}
	v.MinTimeout, v.measured = short.Granted, short.Tick()
	if err := short.Close(); err != nil {
		return fmt.Errorf("closing a session: %w", err)
	}
	long, err := session.OpenProbe(ctx, x.Session, v.Addr, 24*time.Hour)
	if err != nil {
		return err
	}
	v.MaxTimeout = long.Granted
	v.Offset = x.clock(ctx, v, long)
	v.Packet = x.takesPacket(long)
	if v.Packet {
		return nil
	}
	// A server hangs up on a request that is too long, but also when it shuts down. So ask once
	// more: a server that has shut down opens no session, and that is the error then, not its
	// packet limit.
	again, err := session.OpenProbe(ctx, x.Session, v.Addr, time.Millisecond)
	if err != nil {
		return err
	}
	v.Packet = x.takesPacket(again)
	return nil
}

// takesPacket reports whether the server takes a request as long as the packet limit. It closes p.
func (x *examination) takesPacket(p *session.Probe) bool {
	err := p.Takes(x.packet())
	// The connection may be lost by now. A session without znodes may also expire by itself.
	_ = p.Close()
	return err == nil
}

// packet returns the length of the longest request that the client sends.
func (x *examination) packet() int {
	if x.Session.JuteMaxBuffer > 0 {
		return x.Session.JuteMaxBuffer
	}
	return session.DefaultJuteMaxBuffer
}

// clock reads the server's clock. The server's list of connections tells at which time, by its own
// clock, it accepted the probe's connection. clock returns nil if the list can't be read.
func (x *examination) clock(ctx context.Context, v *Server, p *session.Probe) *Offset {
	answer, err := session.FourLetter(ctx, x.Session, v.Addr, "cons")
	if err != nil {
		v.unknown("clock", err)
		return nil
	}
	for line := range strings.Lines(answer) {
		if !strings.Contains(line, fmt.Sprintf("sid=0x%x,", uint64(p.ID))) {
			continue
		}
		_, est, _ := strings.Cut(line, ",est=") // the time at which it was established
		est, _, _ = strings.Cut(est, ",")
		if ms, err := strconv.ParseInt(est, 10, 64); err == nil {
			return offset(time.UnixMilli(ms), p.Sent, p.Answered)
		}
	}
	v.unknown("clock", errWord("cons", answer))
	return nil
}

// offset returns how far a clock is ahead of ours. theirs is its time, in milliseconds, which was
// read between the instants from and to by our clock.
func offset(theirs, from, to time.Time) *Offset {
	half := to.Sub(from) / 2
	return &Offset{Ahead: theirs.Sub(from.Add(half).Round(0)), Error: half + time.Millisecond}
}

// errWord returns why the answer to a four-letter word told nothing.
func errWord(word, answer string) error {
	switch {
	case strings.Contains(answer, "is not executed because"):
		return fmt.Errorf("four-letter word %s is not in the server's 4lw.commands.whitelist", word)
	case answer == "":
		return fmt.Errorf("no answer to the four-letter word %s", word)
	case strings.Contains(answer, "not currently serving requests"):
		return errNoQuorum
	}
	return fmt.Errorf("can't read the answer to the four-letter word %s", word)
}

// Reasons that a server itself gives for refusing sessions.
var (
	errNoQuorum = errors.New("the server serves no requests: it has no quorum")
	errReadOnly = errors.New("the server is read-only: it has no quorum, " +
		"and serves only clients that ask for reads alone")
)

// unknown notes that something could not be found out, and why.
func (v *Server) unknown(what string, why error) {
	v.Unknown = append(v.Unknown, what+": "+said(why))
}

// words asks for version, mode and tick, by four-letter words, or where these are closed, by the
// admin port. It returns errNoQuorum if the server says that it has no quorum, and nil otherwise.
func (x *examination) words(ctx context.Context, v *Server) (refusal error) {
	srvrErr := x.srvr(ctx, v)
	confErr := x.conf(ctx, v)
	if errors.Is(srvrErr, errNoQuorum) {
		refusal = errNoQuorum
	}
	if (srvrErr != nil || confErr != nil) && x.AdminPort > 0 {
		adminErr := x.admin(ctx, v)
		if adminErr == nil {
			srvrErr, confErr = nil, nil
		} else {
			srvrErr, confErr = both(srvrErr, adminErr), both(confErr, adminErr)
		}
	}
	if srvrErr != nil {
		v.unknown("version and mode", srvrErr)
	}
	if confErr != nil {
		v.unknown("tick", confErr)
	}
	number, _, _ := strings.Cut(v.Version, "-") // "3.8.0-${mvngit.commit.id}, built on …"
	v.Version = text.Short(number, 60)
	return refusal
}

// srvr reads the version and the mode from the answer to the four-letter word srvr.
func (x *examination) srvr(ctx context.Context, v *Server) error {
	answer, err := session.FourLetter(ctx, x.Session, v.Addr, "srvr")
	if err != nil {
		return err
	}
	v.Version = field(answer, "Zookeeper version: ")
	v.Mode = field(answer, "Mode: ")
	if v.Version == "" {
		return errWord("srvr", answer)
	}
	return nil
}

// conf reads the tick from the answer to the four-letter word conf.
func (x *examination) conf(ctx context.Context, v *Server) error {
	answer, err := session.FourLetter(ctx, x.Session, v.Addr, "conf")
	if err != nil {
		return err
	}
	ms, err := strconv.Atoi(field(answer, "tickTime="))
	v.Tick = time.Duration(ms) * time.Millisecond
	if err != nil {
		return errWord("conf", answer)
	}
	return nil
}

// readOnly returns errReadOnly if the server says that it is read-only (readonlymode.enabled), and
// nil otherwise. If its mode is unknown, readOnly asks it by isro, the only four-letter word that
// such a server always allows.
func (x *examination) readOnly(ctx context.Context, v *Server) error {
	const mode = "read-only"
	if v.Mode == "" {
		answer, err := session.FourLetter(ctx, x.Session, v.Addr, "isro")
		if err == nil && strings.TrimSpace(answer) == "ro" {
			v.Mode = mode
		}
	}
	if v.Mode == mode {
		return errReadOnly
	}
	return nil
}

// both returns why neither the four-letter word nor the admin port told something. It returns nil
// if the word did.
func both(word, admin error) error {
	if word == nil {
		return nil
	}
	return fmt.Errorf("%w; admin port: %w", word, admin)
}

// field returns the rest of the line that begins with key.
func field(answer, key string) string {
	for line := range strings.Lines(answer) {
		if value, ok := strings.CutPrefix(line, key); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// speed opens a session as the client would, and measures a read and a write.
func (x *examination) speed(ctx context.Context, v *Server) error {
	s, err := x.open(ctx, v.Addr)
	if err != nil {
		return err
	}
	defer s.Close()
	began := time.Now()
	if _, err := s.Exists(ctx, "/"); err != nil && !answered(err) {
		return err
	}
	v.Read = time.Since(began)
	began = time.Now()
	// The leader carries out the deletion. It has no effect, since the znode does not exist.
	if err := s.Delete(ctx, missing(began), -1); err != nil && !answered(err) {
		return err
	}
	v.Write = time.Since(began)
	return nil
}

// missing returns the path of a znode that does not exist.
func missing(now time.Time) string { return fmt.Sprintf("/zklock-doctor-%x", now.UnixNano()) }

// answered reports whether err is a server's verdict on an operation that it understood.
func answered(err error) bool {
	return errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrNoAuth)
}

// open opens a session with one server. Nothing uses its lease, so any tick will do.
func (x *examination) open(ctx context.Context, addr string) (*session.Session, error) {
	conf := x.Session
	conf.TickTime, conf.Logger, conf.OnState = time.Millisecond, nil, nil
	return session.Open(ctx, addr+x.chroot, conf)
}
