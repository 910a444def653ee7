package recipe

// A semaphore is a queue whose first contenders hold together, as far as its permits go:
//
//	A contender holds when the permits of all contenders before it, and its own, are together at
//	most the size.
//
// So a contender gets all of its permits or none, in order of arrival, and small requests can't
// starve a large one. It is safe, because contenders before us can only disappear: their sum only
// falls.
var semaphore = kind{
	name:     "semaphore",
	labels:   []string{"lease-"},
	waitsFor: []Kind{Permits},
	holds:    permitsLeft,
	sized:    true,
}

// MaxPermits bounds the size of a semaphore, so that the sum of two sizes can't overflow, even
// where an int has 32 bits.
const MaxPermits = 1 << 29

// permitsLeft reports whether those before own leave as many permits as it wants.
func permitsLeft(_ *kind, before tally, own Name, size int) bool {
	return before.permits+own.Permits <= size
}
