package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/zklock/locker/internal/text"
)

// apart is how far servers' clocks may be apart, beyond what the measurement leaves open.
const apart = time.Second

// findings judges what was found.
func (x *examination) findings(r *Report) []Finding {
	var all []Finding
	for i := range r.Servers {
		v := &r.Servers[i]
		if v.Error != "" {
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
	if !slices.ContainsFunc(r.Servers, func(v Server) bool { return v.Error == "" }) {
		all = append(all, Finding{Danger, "", "no server serves this client"})
	}
	rank := map[Severity]int{Danger: 0, Warning: 1, Note: 2}
	slices.SortStableFunc(all, func(a, b Finding) int { return cmp.Compare(rank[a.Severity], rank[b.Severity]) })
	return all
}

// ofServer judges one server that serves.
func (x *examination) ofServer(v *Server) (found []Finding) {
	say := func(s Severity, format string, args ...any) {
		found = append(found, Finding{s, v.Addr, fmt.Sprintf(format, args...)})
	}
	given := x.Session.TickTime
	tick := cmp.Or(given, v.finds)
	believes := fmt.Sprintf("believes %v", given)
	if given == 0 {
		believes = fmt.Sprintf("finds out %v by its minSessionTimeout", v.finds)
	}
	switch {
	case v.Tick > tick:
		say(Danger, "its tickTime is %v, and the client %s: two clients may hold one lock. Give WithTickTime (--tick) %v", v.Tick, believes, v.Tick)
	case v.Tick > 0 && v.MinTimeout < 2*v.Tick:
		say(Warning, "its minSessionTimeout of %v is below two ticks of %v: a lease may outlast a session that is taken up there", v.MinTimeout, v.Tick)
	case v.Tick == 0 && v.finds > tick:
		say(Warning, "grants no session timeout below %v, two of its ticks by default: if its tickTime is %v, leave out WithTickTime (--tick), or give that", v.MinTimeout, v.finds)
	case v.Tick == 0 && v.finds < tick:
		say(Note, "grants session timeouts down to %v: its tickTime is %v by default, and leases last longer without WithTickTime (--tick)", v.MinTimeout, v.finds)
	case v.Tick == 0:
		say(Note, "grants session timeouts down to %v: if that is less than two of its ticks, give WithTickTime (--tick)", v.MinTimeout)
	case v.Tick < tick:
		say(Note, "its tickTime is %v, and the client %s: leases last longer if WithTickTime (--tick) is %v", v.Tick, believes, v.Tick)
	}
	if !v.Packet {
		say(Danger, "takes no request of %d bytes: its jute.maxbuffer is smaller. Give WithJuteMaxBuffer its value, or long requests cost the connection again and again", x.packet())
	}
	for _, what := range v.Unknown {
		say(Note, "can't tell %s", what)
	}
	return found
}

// unequal compares the servers' limits.
func unequal(r *Report) (found []Finding) {
	for name, of := range map[string]func(*Server) time.Duration{
		"minSessionTimeout": func(v *Server) time.Duration { return v.MinTimeout },
		"maxSessionTimeout": func(v *Server) time.Duration { return v.MaxTimeout },
		"tickTime":          func(v *Server) time.Duration { return v.Tick },
	} {
		var figures []string
		differ, first := false, time.Duration(0)
		for i := range r.Servers {
			v := &r.Servers[i]
			d := of(v)
			if d == 0 {
				continue
			}
			figures = append(figures, v.Addr+" "+d.String())
			differ = differ || first != 0 && d != first
			first = d
		}
		if differ {
			found = append(found, Finding{Danger, "", "servers differ in " + name + ": " + strings.Join(figures, ", ") +
				". A session that moves to a server with a smaller one may end before its lease"})
		}
	}
	slices.SortFunc(found, func(a, b Finding) int { return cmp.Compare(a.Text, b.Text) })
	return found
}

// bugs is the page that lists what loses data in which release.
const bugs = "https://github.com/zklock/locker/blob/main/docs/operate/before-production.md"

// mended is the first release without the bugs by which a server can lose writes that it has
// acknowledged.
var mended = []int{3, 9, 4}

// older reports whether the release is one before mended, as far as its number tells: a distributor
// may have patched it.
func older(version string) bool {
	v := make([]int, len(mended))
	n, _ := fmt.Sscanf(version, "%d.%d.%d", &v[0], &v[1], &v[2])
	return n == len(v) && slices.Compare(v, mended) < 0
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
	found := []Finding{{Note, "", "ZooKeeper " + strings.Join(versions, " and ") + ": " + bugs + " lists what is open in it"}}
	for _, version := range slices.DeleteFunc(slices.Clone(versions), func(v string) bool { return !older(v) }) {
		found = append(found, Finding{Warning, "", "ZooKeeper " + version + " can lose acknowledged writes, and with them locks, unless its distributor has mended that: run 3.9.4 or later"})
	}
	if len(versions) > 1 {
		found = append(found, Finding{Note, "", "servers run different releases"})
	}
	return found
}

// ofClocks compares the servers' clocks.
func ofClocks(r *Report) []Finding {
	var low, high *Server
	for i := range r.Servers {
		v := &r.Servers[i]
		if v.Offset == nil {
			continue
		}
		if low == nil || v.Offset.Ahead < low.Offset.Ahead {
			low = v
		}
		if high == nil || v.Offset.Ahead > high.Offset.Ahead {
			high = v
		}
	}
	if low == nil || low == high {
		return nil
	}
	if d := high.Offset.Ahead - low.Offset.Ahead; d > apart+high.Offset.Error+low.Offset.Error {
		return []Finding{{Warning, "", fmt.Sprintf("the clock of %s is %v ahead of that of %s: locks do not mind, but the dates of znodes, by which Job.Every counts its periods, jump when the leader changes",
			high.Addr, d.Round(time.Millisecond), low.Addr)}}
	}
	return nil
}

// ofTimeout holds the session timeout that is asked for against ticks and limits.
func (x *examination) ofTimeout(r *Report) (found []Finding) {
	for i := range r.Servers {
		v := &r.Servers[i]
		if v.Error != "" {
			continue
		}
		granted := min(max(r.Asked, v.MinTimeout), v.MaxTimeout)
		if granted != r.Asked {
			found = append(found, Finding{Note, v.Addr, fmt.Sprintf("grants a session timeout of %v, not the %v that the client asks for", granted, r.Asked)})
		}
		if v.Tick > 0 && granted < 4*v.Tick {
			found = append(found, Finding{Warning, v.Addr, fmt.Sprintf("a session timeout of %v is below four ticks of %v: a hold is lost, safely, when its server hangs", granted, v.Tick)})
		}
	}
	return found
}

// ofEphemerals holds the longest list of ephemeral znodes against what servers read: as much again
// as jute.maxbuffer, by default, of which only that it is no smaller than the packet limit is
// known.
func (x *examination) ofEphemerals(r *Report) []Finding {
	if r.Longest == nil || r.Longest.Bytes <= x.packet() {
		return nil
	}
	severity := Warning
	if r.Longest.Bytes > 2*x.packet() {
		severity = Danger
	}
	return []Finding{{severity, "", fmt.Sprintf("session %#x has %d ephemeral znodes, with paths of %d bytes together: its end is one transaction, "+
		"and servers whose jute.maxbuffer is %d read none beyond %d bytes, and stop at it for good", r.Longest.Session, r.Longest.Count,
		r.Longest.Bytes, x.packet(), 2*x.packet())}}
}

// ofAccess judges the permissions at the path.
func (x *examination) ofAccess(r *Report) (found []Finding) {
	a := r.Access
	if a.Path == "" {
		return nil // no server was there to be asked
	}
	say := func(s Severity, format string, args ...any) {
		found = append(found, Finding{Severity: s, Text: fmt.Sprintf(format, args...)})
	}
	switch {
	case a.Error != "":
		say(Warning, "%s: can't tell all permissions: %s", a.Path, a.Error)
	case a.At == "" && x.Session.CreateChroot:
		say(Note, "the chroot %s does not exist; the first lock makes it, if it may", x.chroot)
		return found
	case a.At == "":
		say(Danger, "the chroot %s does not exist: no lock can be taken before it is made, or WithCreateChroot is given", x.chroot)
		return found
	case a.At != a.Path:
		say(Note, "%s does not exist; the first lock makes it below %s, if it may", a.Path, a.At)
	}
	if a.Create == Refused {
		say(Danger, "%s: CREATE is refused: no lock can be taken", a.At)
	}
	if a.At != a.Path {
		return found // the other permissions are needed at the lock's own znode
	}
	if a.Delete == Refused {
		say(Danger, "%s: DELETE is refused: a lock is freed only by the end of its session", a.At)
	}
	if a.Read == Refused {
		say(Danger, "%s: READ is refused: nobody can see whose turn it is", a.At)
	}
	if a.Write == Refused {
		say(Note, "%s: WRITE is refused, which semaphores and elections need", a.At)
	}
	for _, name := range a.Persistent {
		say(Danger, "%s: %s is a persistent znode with a contender's name: a lock waits for it until somebody deletes it",
			a.Path, text.Foreign(name))
	}
	return found
}
