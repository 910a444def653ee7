package recipe

// A mutex's contender waits for all before it, and so does a candidate of an election. "lock-" is
// Curator's and go-zookeeper's label too, "__lock__" Kazoo's. rank.go says how candidates' ranks
// decide who becomes the first in line.
var mutex = kind{
	name:     "mutex",
	labels:   []string{"lock-", "__lock__"},
	waitsFor: []Kind{Lock},
	holds:    noneInWay,
	alone:    true,
}
