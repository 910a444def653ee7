package recipe

// A semaphore is a queue whose first contenders hold together, as far as its permits go:
//
//	a contender holds when the permits of all contenders before it, and its own, are at most the size.
//
// So permits are given in order of arrival, all or none, and small requests can't starve a large one. It is safe, since
// contenders before us can only disappear, so that the sum before us only falls.
var semaphore = kind{
	name:     "semaphore",
	labels:   []string{"lease-"},
	waitsFor: []Kind{Permits},
	holds:    room,
	sized:    true,
}

// MaxPermits bounds the size of a semaphore, so that the sum of two sizes can't overflow, even where an int has 32 bits.
const MaxPermits = 1 << 29

// room reports that there are permits left for one more.
func room(_ *kind, before *tally, own Name, size int) bool { return before.permits+own.Permits <= size }
