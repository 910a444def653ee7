package recipe

import (
	"math"
	"strconv"
	"strings"
)

// # Ranks
//
// An election's candidate may have a rank in its name, before the label. A name without one, as
// other clients' names are, has rank 0. The rule for who leads next has four parts:
//
//   - Nobody is pre-empted, and only the first in line holds. So nothing that protects a hold
//     depends on ranks.
//   - Of two candidates, the one of higher rank goes before the other. Of two with equal ranks, the
//     one that first arrived earlier does (Name.Arrival).
//   - A candidate that has become the first steps aside if one behind it goes before it: it leaves
//     its place for one at the end of the line, in one transaction. Its new name keeps its first
//     arrival.
//   - It steps aside once in a vacancy. If it becomes the first again in the same vacancy, it
//     leads.
//
// Without the last part, a release of higher rank that crashes again and again would leave the
// election without a leader: each crash leaves a znode in line until its session has ended, and
// each restart adds another.
//
// # Vacancies
//
// A vacancy lasts from one term that was led to the next. Without that, a candidate that stepped
// aside an hour ago would lead before one of higher rank that has come since, although somebody
// else has led for most of the hour.
//
// A leader signs its term: it writes the directory's data, and leaves them as they are. It does so
// when it has led for a session timeout, and in the transaction by which it resigns. So a
// directory's Mzxid is that of the latest sign of a term. A candidate that has stepped aside
// compares it with the czxid of its own znode, which it made when it stepped aside. The list that
// shows it to be the first has both. It also shows all that came before the deletion of the
// candidate's last predecessor, and a leader that signs has a znode.
//
// A term leaves no sign if it fails within a session timeout: by a crash, or because the function
// of Election.Run, or the command of zklock elect, has returned an error. So a release that fails
// a second after it has come to lead, again and again, does not keep a healthy candidate waiting.
//
// These leave no sign either:
//
//   - a short term in a directory with another program's data, or whose leader has no connection
//     when it resigns;
//   - a leader that may not write the directory's data;
//   - contenders that are not candidates, such as those of other libraries.
//
// Another program that writes the directory's data looks like a leader that signs. All this
// affects only who leads next: still only the first in line leads.
//
// # Why somebody leads
//
// A candidate that has stepped aside has a fixed set of contenders before it, whatever candidates
// of higher rank do: those that come later are behind it. Of that set
//
//   - each that gives up goes at once,
//   - those that have crashed go with their sessions, which end in parallel, within a session
//     timeout and two ticks,
//   - each that comes to lead signs its term, or fails within a session timeout, and goes at once
//     or with its session.
//
// So the time in which nobody leads for a session timeout has a bound. For a candidate that has
// just stepped aside it is a session timeout and two ticks, and two session timeouts and two ticks
// for each process before it that comes to lead and crashes. Until it stepped aside, the order of
// arrival allowed the same: ranks double the bound. A release that fails again and again after it
// has led for a session timeout, however, leads: nobody can tell it from one that is well.

// MaxRank bounds the ranks of candidates: a number of a release, or a time in seconds.
const MaxRank = math.MaxInt32

const rankLabel = "rank-"

// rankOf reads rank and first arrival from the end of text, which stands before a name's label. It
// returns zeros unless the text ends with "-rank-7-", say, or with "-rank-7-9-".
func rankOf(text string) (rank, since int) {
	// Most names have no rank, and their end shows it. text[i:] becomes "-7-", or "-7-9-".
	i := len(text)
	for i > 0 && (text[i-1] == '-' || '0' <= text[i-1] && text[i-1] <= '9') {
		i--
	}
	if i == len(text) || !strings.HasSuffix(text[:i+1], "-"+rankLabel) {
		return 0, 0
	}
	numbers, ok := strings.CutSuffix(text[i+1:], "-")
	if !ok {
		return 0, 0
	}
	first, second, steppedAside := strings.Cut(numbers, "-")
	rank, ok = number32(first)
	if !ok {
		return 0, 0
	}
	if !steppedAside {
		return rank, 0
	}
	since, ok = number32(second)
	if !ok {
		return 0, 0
	}
	return rank, since
}

// number32 reads a number from 0 to MaxInt32. It returns false if text is not one.
func number32(text string) (n int, ok bool) {
	parsed, err := strconv.ParseInt(text, 10, 32)
	return int(parsed), err == nil && parsed >= 0
}

// goesBefore reports whether n, a contender behind own, is to lead before own.
func (n Name) goesBefore(own Name) bool {
	if n.Rank != own.Rank {
		return n.Rank > own.Rank
	}
	// Its place is behind own's. So if it has not stepped aside, it arrived later.
	return n.Since > 0 && n.Since < own.Arrival()
}

// Arrival returns how many contenders had entered when this one first did, itself included. Near
// the counter's end, where numbers do not tell that, all have the greatest int32: then equal ranks
// lead in the order of their znodes.
func (n Name) Arrival() int {
	switch {
	case n.Since > 0:
		return n.Since
	case Late(n.Number):
		return math.MaxInt32
	}
	return int(n.Number) + 1
}

// MayStepAside reports whether n, a candidate that has become the first in line, may step aside. It
// returns false if n has stepped aside before in this vacancy: then n has to lead.
//
// ownCzxid is the czxid of its znode, which it made when it last stepped aside. dirMzxid is the
// directory's Mzxid, which is the zxid of the latest sign of a term.
func (n Name) MayStepAside(ownCzxid, dirMzxid int64) bool {
	hasSteppedAside := n.Since > 0
	hasBeenLedSince := dirMzxid > ownCzxid
	return !hasSteppedAside || hasBeenLedSince
}
