// Package zklock gives a program locks on a ZooKeeper ensemble: one holder in the fleet at a time,
// in order of arrival, freed by a crash.
//
//	client, err := zklock.Dial(ctx, "zk1:2181,zk2:2181,zk3:2181")
//	…
//	defer client.Close()
//
//	err = client.Mutex("/locks/rebuild-index").Do(ctx, func(ctx context.Context) error {
//		return rebuild(ctx) // ctx ends when the lock is lost
//	})
//
// The context that Do gives its function, and that Lock returns, ends before the ensemble can give
// the lock away, early enough for the work to stop. That holds even when the ensemble is silent.
// Hold.Token is a number that grows from holder to holder, for stores that can refuse a late
// holder.
//
// Besides Mutex there are RWMutex, Semaphore, MultiLock (several paths at once), Election and Job
// (once in the fleet). Each is a description: making one does no I/O, any number may have the same
// path, and any number of goroutines may use one. A path or option that can't work is the error of
// every call on it (ErrPath, ErrInvalid). Package admin shows who holds and waits, and package
// lockhttp puts locks into net/http.
//
// # What is not guaranteed
//
// A process that was stopped (SIGSTOP, a paused virtual machine, a long garbage collection) can go
// on for a moment as if it still held the lock, if it checked just before. So can work that ignores
// its context. Clocks whose speeds differ by more than two per cent void the lease. A session or
// znode that is removed by force frees the lock at once, and the old holder notices a moment later.
// The guarantee then is the Token and Hold.Multi, whose writes commit only while the lock is ours.
//
// A contender whose session ends queues again, at the end of the line.
//
// # Mistakes
//
// A call with a nil context, or with a Client, lock or Hold that is nil or the zero value, panics,
// as package context does. Everything that can come from outside is an error.
//
// Package recipe decides who holds; docs/maintainers/proof.md has the safety argument.
package zklock
