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
	refusal := x.words(ctx, &v)
	if err != nil && refusal == nil {
		refusal = x.readOnly(ctx, &v)
	}
	if err == nil {
		err = x.speed(ctx, &v)
	}
	v.Error = said(because(refusal, err))
	return v
}

// because returns why a server serves nothing: the reason that it gives itself, if it gives one.
//
// A server that refuses sessions closes their connections, and names its reason only in answers to
// four-letter words. Once that is known, the guesses of failure.ErrUnanswered would mislead.
func because(refusal, err error) error {
	switch {
	case err == nil, refusal == nil:
		return err
	case errors.Is(err, failure.ErrUnanswered):
		return refusal
	}
	return fmt.Errorf("%w (%w)", refusal, err)
}

// said is an error as a report has it.
func said(err error) string {
	if err == nil {
		return ""
	}
	return text.Foreign(strings.ReplaceAll(err.Error(), "\n", "; ")) // joined errors
}

// limits finds out by what the server grants, and how its clock stands, on throwaway sessions
// without znodes.
func (x *examination) limits(ctx context.Context, v *Server) error {
	short, err := session.OpenProbe(ctx, x.Session, v.Addr, time.Millisecond)
	if err != nil {
		return err
	}
	v.MinTimeout, v.finds = short.Granted, short.Tick()
	if err := short.Close(); err != nil {
		return fmt.Errorf("closing a session: %w", err)
	}
	long, err := session.OpenProbe(ctx, x.Session, v.Addr, 24*time.Hour)
	if err != nil {
		return err
	}
	v.MaxTimeout = long.Granted
	v.Offset = x.clock(ctx, v, long)
	v.Packet = long.Takes(x.packet()) == nil // what it means is the findings' to say
	_ = long.Close()                         // with the connection it may have gone already; a session without znodes runs out by itself
	return nil
}

// packet is the longest request that the client sends.
func (x *examination) packet() int {
	if x.Session.JuteMaxBuffer > 0 {
		return x.Session.JuteMaxBuffer
	}
	return session.DefaultJuteMaxBuffer
}

// clock reads, from the server's list of connections, when by its own clock the probe's was
// accepted.
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
		_, est, _ := strings.Cut(line, ",est=")
		est, _, _ = strings.Cut(est, ",")
		if ms, err := strconv.ParseInt(est, 10, 64); err == nil {
			return offset(time.UnixMilli(ms), p.Sent, p.Answered)
		}
	}
	v.unknown("clock", errWord("cons", answer))
	return nil
}

// offset compares a clock that was read between two instants of ours. Clocks are read in
// milliseconds.
func offset(theirs, from, to time.Time) *Offset {
	half := to.Sub(from) / 2
	return &Offset{Ahead: theirs.Sub(from.Add(half).Round(0)), Error: half + time.Millisecond}
}

// errWord says why a four-letter word told nothing.
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

// Reasons for which a server refuses sessions, as it gives them itself.
var (
	errNoQuorum = errors.New("the server serves no requests: it has no quorum")
	errReadOnly = errors.New("the server is read-only: it has no quorum, " +
		"and serves only clients that ask for reads alone")
)

func (v *Server) unknown(what string, why error) {
	v.Unknown = append(v.Unknown, what+": "+said(why))
}

// words asks what only four-letter words tell, or the admin port. It returns errNoQuorum if they
// say that there is none.
func (x *examination) words(ctx context.Context, v *Server) (refusal error) {
	srvr, err := session.FourLetter(ctx, x.Session, v.Addr, "srvr")
	if err == nil {
		v.Version, v.Mode = field(srvr, "Zookeeper version: "), field(srvr, "Mode: ")
		if v.Version == "" {
			err = errWord("srvr", srvr)
		}
	}
	conf, confErr := session.FourLetter(ctx, x.Session, v.Addr, "conf")
	if confErr == nil {
		ms, parseErr := strconv.Atoi(field(conf, "tickTime="))
		v.Tick = time.Duration(ms) * time.Millisecond
		if parseErr != nil {
			confErr = errWord("conf", conf)
		}
	}
	if errors.Is(err, errNoQuorum) {
		refusal = errNoQuorum
	}
	if (err != nil || confErr != nil) && x.AdminPort > 0 {
		if adminErr := x.admin(ctx, v); adminErr != nil {
			err, confErr = both(err, adminErr), both(confErr, adminErr)
		} else {
			err, confErr = nil, nil
		}
	}
	if err != nil {
		v.unknown("version and mode", err)
	}
	if confErr != nil {
		v.unknown("tick", confErr)
	}
	number, _, _ := strings.Cut(v.Version, "-") // "3.8.0-${mvngit.commit.id}, built on …"
	v.Version = text.Short(number, 60)
	return refusal
}

// readOnly returns errReadOnly if the server says that it is read-only (readonlymode.enabled). If
// its mode is unknown, it is asked by isro, the one word that such a server always allows.
func (x *examination) readOnly(ctx context.Context, v *Server) error {
	const mode = "read-only"
	if v.Mode == "" {
		answer, err := session.FourLetter(ctx, x.Session, v.Addr, "isro")
		if err == nil && strings.TrimSpace(answer) == "ro" {
			v.Mode = mode
		}
	}
	if v.Mode != mode {
		return nil
	}
	return errReadOnly
}

// both says why neither way told something; nil when the first did.
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
	// Through the leader, and without effect: what does not exist is deleted.
	if err := s.Delete(ctx, missing(began), -1); err != nil && !answered(err) {
		return err
	}
	v.Write = time.Since(began)
	return nil
}

// missing names a znode that nobody has.
func missing(now time.Time) string { return fmt.Sprintf("/zklock-doctor-%x", now.UnixNano()) }

// answered reports whether err is a server's verdict on an operation that it understood.
func answered(err error) bool {
	return errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrNoAuth)
}

// open opens a session with one server. Its lease is of no interest, so any tick will do.
func (x *examination) open(ctx context.Context, addr string) (*session.Session, error) {
	conf := x.Session
	conf.TickTime, conf.Logger, conf.OnState = time.Millisecond, nil, nil
	return session.Open(ctx, addr+x.chroot, conf)
}
