package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/zklock/locker/internal/text"
)

// maxApart is how far servers' clocks may be apart, beyond the errors of the measurements.
const maxApart = time.Second

// findings judges what was found, and returns the findings, the gravest first.
func (x *examination) findings(r *Report) []Finding {
	var all []Finding
	for i := range r.Servers {
		v := &r.Servers[i]
		if !v.serves() {
			all = append(all, Finding{Warning, v.Addr, "does not serve this client: " + v.Error})
			continue
		}
		all = append(all, x.ofServer(v)...)
	}
	all = append(all, unequal(r)...)
	all = append(all, ofReleases(r)...)
	all = append(all, ofClocks(r)...)
	all = append(all, x.ofTimeout(r)...)
	all = append(all, x.ofEphemerals(r)...)
	all = append(all, x.ofAccess(r)...)
	if !slices.ContainsFunc(r.Servers, Server.serves) {
		all = append(all, Finding{Danger, "", "no server serves this client"})
	}
	rank := map[Severity]int{Danger: 0, Warning: 1, Note: 2}
	slices.SortStableFunc(all, func(a, b Finding) int {
		return cmp.Compare(rank[a.Severity], rank[b.Severity])
	})
	return all
}

// list collects findings about one server, or about the ensemble.
type list struct {
	server string // "" stands for the ensemble
	all    []Finding
}

func (l *list) add(s Severity, format string, args ...any) {
	l.all = append(l.all, Finding{s, l.server, fmt.Sprintf(format, args...)})
}

// ofServer judges one server that serves.
func (x *examination) ofServer(v *Server) []Finding {
	found := list{server: v.Addr}
	x.ofTick(v, &found)
	if !v.Packet {
		found.add(Danger, "takes no request of %d bytes: its jute.maxbuffer is smaller. "+
			"Give WithJuteMaxBuffer its value, "+
			"or long requests cost the connection again and again", x.packet())
	}
	for _, what := range v.Unknown {
		found.add(Note, "can't tell %s", what)
	}
	return found.all
}

// ofTick compares the server's tick with the one that the client assumes. The client assumes the
// tick that WithTickTime gives it, or half of the least session timeout that it is granted.
func (x *examination) ofTick(v *Server, found *list) {
	assumed := cmp.Or(x.Session.TickTime, v.measured)
	if v.Tick == 0 {
		ofUnknownTick(v, assumed, found)
		return
	}
	source := ""
	if x.Session.TickTime == 0 {
		source = ", half of its minSessionTimeout"
	}
	switch {
	case v.Tick > assumed:
		found.add(Danger, "its tickTime is %v, and the client assumes %v%s: "+
			"two clients may hold one lock. Give WithTickTime (--tick) %v",
			v.Tick, assumed, source, v.Tick)
	case v.MinTimeout < 2*v.Tick:
		found.add(Warning, "its minSessionTimeout of %v is below two ticks of %v: "+
			"a lease may outlast a session that moves to this server", v.MinTimeout, v.Tick)
	case v.Tick < assumed:
		found.add(Note, "its tickTime is %v, and the client assumes %v%s: "+
			"leases last longer if WithTickTime (--tick) is %v",
			v.Tick, assumed, source, v.Tick)
	}
}

// ofUnknownTick compares the tick that the client assumes with v.measured. That is the server's
// tick unless minSessionTimeout is set in its zoo.cfg.
func ofUnknownTick(v *Server, assumed time.Duration, found *list) {
	switch {
	case v.measured > assumed:
		found.add(Warning, "grants no session timeout below %v, two of its ticks by default: "+
			"if its tickTime is %v, leave out WithTickTime (--tick), or give that",
			v.MinTimeout, v.measured)
	case v.measured < assumed:
		found.add(Note, "grants session timeouts down to %v: its tickTime is %v by default, "+
			"and leases last longer without WithTickTime (--tick)", v.MinTimeout, v.measured)
	default:
		found.add(Note, "grants session timeouts down to %v: "+
			"if that is less than two of its ticks, give WithTickTime (--tick)", v.MinTimeout)
	}
}

// unequal compares the servers' limits.
func unequal(r *Report) []Finding {
	var found list
	limits := map[string]func(*Server) time.Duration{
		"minSessionTimeout": func(v *Server) time.Duration { return v.MinTimeout },
		"maxSessionTimeout": func(v *Server) time.Duration { return v.MaxTimeout },
		"tickTime":          func(v *Server) time.Duration { return v.Tick },
	}
	for name, of := range limits {
		figures, differ := figuresOf(r.Servers, of)
		if differ {
			found.add(Danger, "servers differ in %s: %s. A session that moves to a server with "+
				"a smaller one may end before its lease", name, strings.Join(figures, ", "))
		}
	}
	slices.SortFunc(found.all, func(a, b Finding) int { return cmp.Compare(a.Text, b.Text) })
	return found.all
}

// figuresOf returns each server's value of a limit, as text, and whether they differ. It leaves out
// servers whose value is unknown.
func figuresOf(
	servers []Server, of func(*Server) time.Duration,
) (figures []string, differ bool) {
	var last time.Duration
	for i := range servers {
		v := &servers[i]
		d := of(v)
		if d == 0 {
			continue
		}
		figures = append(figures, v.Addr+" "+d.String())
		if last != 0 && d != last {
			differ = true
		}
		last = d
	}
	return figures, differ
}

// bugs is the page that lists which bugs lose data in which release.
const bugs = "https://github.com/zklock/locker/blob/main/docs/operate/before-production.md"

// fixed is the first release without the bugs by which a server can lose writes that it has
// acknowledged.
var fixed = []int{3, 9, 4}

// older reports whether the number of a release is below that of fixed. A distributor may have
// patched such a release all the same.
func older(version string) bool {
	v := make([]int, len(fixed))
	n, _ := fmt.Sscanf(version, "%d.%d.%d", &v[0], &v[1], &v[2])
	return n == len(v) && slices.Compare(v, fixed) < 0
}

// ofReleases names the servers' releases, and where their bugs are listed.
func ofReleases(r *Report) []Finding {
	var versions []string
	for _, v := range r.Servers {
		if v.Version != "" {
			versions = append(versions, v.Version)
		}
	}
	slices.Sort(versions)
	versions = slices.Compact(versions)
	if len(versions) == 0 {
		return nil
	}
	var found list
	found.add(Note, "ZooKeeper %s: %s lists what is open in it",
		strings.Join(versions, " and "), bugs)
	for _, version := range versions {
		if older(version) {
			found.add(Warning, "ZooKeeper %s can lose acknowledged writes, and with them locks, "+
				"unless its distributor has fixed that: run 3.9.4 or later", version)
		}
	}
	if len(versions) > 1 {
		found.add(Note, "servers run different releases")
	}
	return found.all
}

// ofClocks compares the servers' clocks that are known.
func ofClocks(r *Report) []Finding {
	var known []*Server
	for i := range r.Servers {
		if r.Servers[i].Offset != nil {
			known = append(known, &r.Servers[i])
		}
	}
	if len(known) == 0 {
		return nil
	}
	byOffset := func(a, b *Server) int { return cmp.Compare(a.Offset.Ahead, b.Offset.Ahead) }
	low := slices.MinFunc(known, byOffset)
	high := slices.MaxFunc(known, byOffset)
	d := high.Offset.Ahead - low.Offset.Ahead
	if d <= maxApart+high.Offset.Error+low.Offset.Error {
		return nil
	}
	var found list
	found.add(Warning, "the clock of %s is %v ahead of that of %s: locks are not affected, "+
		"but the dates of znodes, by which Job.Every counts its periods, "+
		"jump when the leader changes", high.Addr, d.Round(time.Millisecond), low.Addr)
	return found.all
}

// ofTimeout compares the session timeout that the client asks for with the servers' ticks and
// limits.
func (x *examination) ofTimeout(r *Report) []Finding {
	var all []Finding
	for i := range r.Servers {
		v := &r.Servers[i]
		if !v.serves() {
			continue
		}
		found := list{server: v.Addr}
		granted := min(max(r.Asked, v.MinTimeout), v.MaxTimeout)
		if granted != r.Asked {
			found.add(Note, "grants a session timeout of %v, not the %v that the client asks for",
				granted, r.Asked)
		}
		if v.Tick > 0 && granted < 4*v.Tick {
			found.add(Warning, "a session timeout of %v is below four ticks of %v: "+
				"a hold is lost, safely, when its server hangs", granted, v.Tick)
		}
		all = append(all, found.all...)
	}
	return all
}

// ofEphemerals compares the longest list of ephemeral znodes with what servers read. By default
// they read twice jute.maxbuffer. Of that limit it is only known that it is no smaller than the
// packet limit.
func (x *examination) ofEphemerals(r *Report) []Finding {
	if r.Longest == nil || r.Longest.Bytes <= x.packet() {
		return nil
	}
	severity := Warning
	if r.Longest.Bytes > 2*x.packet() {
		severity = Danger
	}
	var found list
	found.add(severity, "session %#x has %d ephemeral znodes, with paths of %d bytes together: "+
		"its end is one transaction, and servers whose jute.maxbuffer is %d "+
		"can't read one of more than %d bytes, and stop at it for good",
		r.Longest.Session, r.Longest.Count, r.Longest.Bytes, x.packet(), 2*x.packet())
	return found.all
}

// ofAccess judges the permissions at the path.
func (x *examination) ofAccess(r *Report) []Finding {
	a := r.Access
	if a.Path == "" {
		return nil // no server serves, so none was asked
	}
	var found list
	switch {
	case a.Error != "":
		found.add(Warning, "%s: can't tell all permissions: %s", a.Path, a.Error)
	case a.At == "":
		x.ofMissingChroot(&found)
		return found.all
	case a.At != a.Path:
		found.add(Note, "%s does not exist; the first lock makes it below %s, if it may",
			a.Path, a.At)
	}
	if a.Create == Refused {
		found.add(Danger, "%s: CREATE is refused: no lock can be taken", a.At)
	}
	if a.At != a.Path {
		return found.all // the other permissions are needed at the lock's own znode
	}
	if a.Delete == Refused {
		found.add(Danger, "%s: DELETE is refused: "+
			"a lock is freed only by the end of its session", a.At)
	}
	if a.Read == Refused {
		found.add(Danger, "%s: READ is refused: nobody can see whose turn it is", a.At)
	}
	if a.Write == Refused {
		found.add(Note, "%s: WRITE is refused, which semaphores and elections need", a.At)
	}
	for _, name := range a.Persistent {
		found.add(Danger, "%s: %s is a persistent znode with a contender's name: "+
			"a lock waits for it until somebody deletes it", a.Path, text.Foreign(name))
	}
	return found.all
}

// ofMissingChroot judges that the chroot does not exist.
func (x *examination) ofMissingChroot(found *list) {
	if x.Session.CreateChroot {
		found.add(Note, "the chroot %s does not exist; the first lock makes it, if it may",
			x.chroot)
		return
	}
	found.add(Danger, "the chroot %s does not exist: "+
		"no lock can be taken before it is made, or WithCreateChroot is given", x.chroot)
}
