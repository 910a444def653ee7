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

// contender is the kind that the name of its contenders tells.
func (k Kind) contender() recipe.Kind {
	switch k {
	case KindRead:
		return recipe.Read
	case KindWrite:
		return recipe.Write
	case KindSemaphore:
		return recipe.Permits
	}
	return recipe.Lock
}

// family is one kind for all those whose contenders queue in one directory.
func (k Kind) family() Kind {
	switch k {
	case KindRead:
		return KindWrite
	case KindMulti, KindElection:
		return KindMutex
	}
	return k
}
