package zklock

import "github.com/zklock/locker/recipe"

// Kind says which kind of lock a call, a hold or a contender is of. Hooks, Status, Queue and their JSON forms use the
// same words.
type Kind string

const (
	KindMutex     Kind = "mutex"
	KindRead      Kind = "read"  // of an RWMutex
	KindWrite     Kind = "write" // of an RWMutex
	KindSemaphore Kind = "semaphore"
	// KindMulti is known to the process that made the call: its contenders' znodes are those of a mutex, and Queue shows them
	// so. A candidate's are those of a mutex, too; its data say what it is.
	KindMulti    Kind = "multi"
	KindElection Kind = "election"
)

// kindOf returns the kind that a contender's name tells.
func kindOf(k recipe.Kind) Kind {
	switch k {
	case recipe.Read:
		return KindRead
	case recipe.Write:
		return KindWrite
	case recipe.Permits:
		return KindSemaphore
	}
	return KindMutex
}

// family is the kinds whose contenders queue in one directory, in words.
type family string

const (
	familyMutex     family = "mutex"
	familyRW        family = "read/write lock"
	familySemaphore family = "semaphore"
)

func (k Kind) family() family {
	switch k {
	case KindRead, KindWrite:
		return familyRW
	case KindSemaphore:
		return familySemaphore
	}
	return familyMutex
}
