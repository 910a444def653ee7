// Package releases lists the releases of ZooKeeper that can lose data: which of the tickets about lost or diverging
// data are open in a release, and where each was fixed. It is the one table that the doctor and the documents use.
//
// Source: the release tags of github.com/apache/zookeeper, up to 3.8.6 and 3.9.5: a ticket is fixed in a release when
// its tag contains the commit. What a distribution patches into its packages is not known here.
package releases

import (
	"fmt"
	"strconv"
	"strings"
)

// Ticket is one of ZooKeeper's, about lost or diverging data.
type Ticket struct {
	ID    string   // "ZOOKEEPER-4785"
	What  string   // what happens, and when
	Since string   // the first release that has it; empty: all except those from Fixed on
	Fixed []string // the first release without it, of each line that has one; later lines have it fixed too
}

// First is the earliest release without any ticket that has been fixed anywhere.
const First = "3.9.4"

// Tickets are those known, the gravest first.
var Tickets = []Ticket{
	{
		ID:    "ZOOKEEPER-4925",
		What:  "a server that has rejoined lacks some of the latest writes and, once it leads, so do its followers: acknowledged writes are lost",
		Since: "3.9.3", Fixed: []string{"3.9.4"},
	},
	{
		ID:    "ZOOKEEPER-4785",
		What:  "a server that joins counts as up to date before the writes that it was sent are on its disk: acknowledged writes are lost if it crashes then (also reported as 4643 and 4646)",
		Fixed: []string{"3.8.5", "3.9.2"},
	},
	{
		ID:    "ZOOKEEPER-3911",
		What:  "a server that joins keeps the writes that it is sent meanwhile uncommitted, in memory only: servers diverge when the leader changes",
		Fixed: []string{"3.5.10", "3.6.3", "3.7.0"},
	},
	{
		ID:    "ZOOKEEPER-4712",
		What:  "a server that has left its leader still writes to its log in the background: its data may diverge",
		Fixed: []string{"3.9.3"},
	},
	{
		ID:    "ZOOKEEPER-4394",
		What:  "a server that receives a commit while it joins stops with a NullPointerException, and joins again",
		Fixed: []string{"3.9.3"},
	},
	{
		ID:   "ZOOKEEPER-4837",
		What: "a server whose network failed may keep an ephemeral znode whose session is over: for that server's clients the lock stays taken",
	},
	{
		ID:   "ZOOKEEPER-4882",
		What: "a server whose disk failed for a while may lack writes after it has rejoined and restarted",
	},
}

// Version is a release's number.
type Version struct{ Major, Minor, Patch int }

// Parse reads the number at the beginning of a server's version text ("3.8.0-${mvngit.commit.id}, built on …").
func Parse(s string) (v Version, ok bool) {
	end := strings.IndexFunc(s, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
	if end < 0 {
		end = len(s)
	}
	parts := strings.Split(s[:end], ".")
	if len(parts) != 3 {
		return v, false
	}
	for i, field := range []*int{&v.Major, &v.Minor, &v.Patch} {
		n, err := strconv.Atoi(parts[i])
		if err != nil {
			return Version{}, false
		}
		*field = n
	}
	return v, true
}

// String returns the number with its dots.
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch) }

// Before reports whether v is an earlier number than w.
func (v Version) Before(w Version) bool {
	switch {
	case v.Major != w.Major:
		return v.Major < w.Major
	case v.Minor != w.Minor:
		return v.Minor < w.Minor
	}
	return v.Patch < w.Patch
}

// In reports whether release v has the ticket open.
func (t Ticket) In(v Version) bool {
	if t.Since != "" && v.Before(must(t.Since)) {
		return false
	}
	for i, text := range t.Fixed {
		fixed := must(text)
		switch {
		case fixed.Major == v.Major && fixed.Minor == v.Minor:
			return v.Before(fixed)
		case i == len(t.Fixed)-1:
			return v.Before(fixed)
		}
	}
	return true
}

// Open returns the tickets that release v has open.
func Open(v Version) []Ticket {
	var open []Ticket
	for _, t := range Tickets {
		if t.In(v) {
			open = append(open, t)
		}
	}
	return open
}

// Markdown is the table for the documents: ticket, what happens, in which releases.
func Markdown() string {
	var b strings.Builder
	b.WriteString("| ticket | what happens | open in |\n|---|---|---|\n")
	for _, t := range Tickets {
		fmt.Fprintf(&b, "| [%d](https://issues.apache.org/jira/browse/%s) | %s | %s |\n", t.number(), t.ID, t.What, t.releases())
	}
	return b.String()
}

func (t Ticket) number() int {
	n, err := strconv.Atoi(strings.TrimPrefix(t.ID, "ZOOKEEPER-"))
	if err != nil {
		panic("releases: bad ticket " + t.ID)
	}
	return n
}

// releases describes where the ticket is open.
func (t Ticket) releases() string {
	switch {
	case len(t.Fixed) == 0:
		return "all releases"
	case t.Since != "":
		return "from " + t.Since + ", fixed in " + strings.Join(t.Fixed, ", ")
	}
	return "all before " + strings.Join(t.Fixed, ", ") + earlier(must(t.Fixed[0]))
}

// earlier says that the lines before the first fixed one never got the fix.
func earlier(v Version) string {
	if v.Minor <= 5 {
		return ""
	}
	return fmt.Sprintf("; never fixed in 3.%d and earlier", v.Minor-1)
}

// must parses a number of the table, which a test has read.
func must(s string) Version {
	v, ok := Parse(s)
	if !ok {
		panic("releases: bad version " + s)
	}
	return v
}
