package recipe

import (
	"cmp"
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
//   - A candidate that has become the first steps aside if one behind it goes before it: it
//     leaves, and enters again at the end of the line. Its new name keeps its first arrival.
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
// A leader shows that it leads by writing the directory's data, which it leaves as they are:
//
//   - once, when it has led for a session timeout,
//   - and in the transaction that ends its term.
//
// So a directory's Mzxid is that of the latest sign of a term. A candidate that has stepped aside
// compares it with the czxid of its own znode, which it made when it stepped aside. The list that
// shows it to be the first has both, and they are exact: the list shows all that came before the
// deletion of the candidate's last predecessor, and a leader writes its sign before its own znode
// is deleted.
//
// A term that ends by a crash within a session timeout leaves no sign. It is meant to leave none:
// a release that leads for a second and crashes, again and again, must not keep a healthy candidate
// waiting either. Neither does a term leave one whose leader may not write the directory's data.
// Then a candidate steps aside once at most.
//
// # Why somebody leads
//
// A candidate that has stepped aside has a fixed set of contenders before it, whatever candidates
// of higher rank do: those that come later are behind it. Of that set
//
//   - each that gives up goes at once,
//   - those that have crashed go with their sessions, which end in parallel, within a session
//     timeout and two ticks,
//   - each that comes to lead leaves a sign, and with it a new vacancy begins, or crashes within a
//     session timeout, and goes with its session.
//
// So ranks cost a candidate at most what the order of arrival cost it until it was the first, once
// more. For a release of one process that crashes again and again, wherever it crashes, that is a
// session timeout and two ticks. Each further process that was in line, and crashes within a
// session timeout after it has come to lead, costs as much again.
//
// Near the counter's end, where numbers tell no arrival, equal ranks lead in the order of their
// znodes.

// MaxRank bounds the ranks of candidates: a number of a release, or a time in seconds.
const MaxRank = math.MaxInt32

const rankLabel = "rank-"

// rankOf reads rank and arrival from the end of text, which stands before a name's label.
func rankOf(text string) (rank, since int) {
	i := strings.LastIndex(text, "-"+rankLabel)
	if i < 0 {
		return 0, 0
	}
	text, ok := strings.CutSuffix(text[i+1+len(rankLabel):], "-")
	first, second, steppedAside := strings.Cut(text, "-")
	rank, err := strconv.Atoi(first)
	if steppedAside && err == nil {
		since, err = strconv.Atoi(second)
	}
	if !ok || err != nil || rank < 0 || rank > MaxRank || since < 0 {
		return 0, 0
	}
	return rank, since
}

// goesBefore reports whether n, a contender behind own, is to lead before it.
func (n Name) goesBefore(own Name) bool {
	return n.Rank > own.Rank || n.Rank == own.Rank && n.Since > 0 && n.Since < own.Arrival()
}

// Arrival is how many had entered when a contender first did, itself included, if its number says
// so.
func (n Name) Arrival() int { return cmp.Or(n.Since, int(n.Number)+1) }

// MayStepAside reports whether a candidate that has become the first in line may step aside in this
// vacancy, or has done so already. entered is the czxid of its znode. led is the Mzxid of the
// directory, the zxid of the latest sign that somebody has led.
func (n Name) MayStepAside(entered, led int64) bool {
	return n.Since == 0 || led > entered
}
