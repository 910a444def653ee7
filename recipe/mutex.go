package recipe

import (
	"cmp"
	"math"
	"strconv"
	"strings"
)

// A mutex's contender waits for all before it, and so does a candidate of an election. "lock-" is Curator's and go-zookeeper's
// label too, "__lock__" Kazoo's.
//
// A candidate's name may have a rank before the label; without one, as other clients' names are, it is of rank 0. Of those who
// wait, the highest rank is to lead next, equal ranks by arrival, and nobody takes the lead from one who has it. Still only the
// first in line holds: a candidate that has become the first steps aside, to the end of the line, when one that goes before it
// waits behind it (Verdict.Outranked). So ranks decide who becomes the first, and nothing that protects a hold depends on them.
// It keeps in its new name when it first arrived. So of any two candidates one goes before the other, for good, and each steps
// aside at most once for each that goes before it. (Near the counter's end, where numbers tell no arrival, only ranks count for
// that.) Leaving and entering again are two steps: should the other one give up in between, the next in line leads, whatever
// its rank.
var mutex = kind{
	name:     "mutex",
	labels:   []string{"lock-", "__lock__"},
	waitsFor: []Kind{Lock},
	holds:    first,
	alone:    true,
}

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

// Arrival is how many had entered when a contender first did, itself included, if its number says so.
func (n Name) Arrival() int { return cmp.Or(n.Since, int(n.Number)+1) }
