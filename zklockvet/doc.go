// Zklockvet finds work that a lock of package zklock does not protect:
//
//	go install github.com/zklock/locker/zklockvet@v0.1.0
//	go vet -vettool=$(which zklockvet) ./...
//
// It says nothing where it is not certain. Test files are left out.
//
// # What is reported where
//
// Do, RDo, their Try variants, Once and Every run a function under a lock. In that function these
// are reported:
//   - An argument that is a context from outside the function, or context.Background(), since it
//     does not end when the lock is lost.
//   - context.WithoutCancel in a goroutine, if the function waits for nothing: the goroutine may
//     go on after the release.
//
// Lock, RLock, Acquire, their Try variants and Campaign return a context, a Hold and an error.
// These are reported:
//   - The call, if the Hold is thrown away: nothing can unlock the lock then.
//   - If the context is thrown away, the first work that gets the context with which Lock was
//     called. Work with context.Background() is not reported here. It may be meant to go on without
//     the lock, and no function says where the work under the lock ends.
//
// A call of WithRank or AtMostOnce whose result is thrown away is reported: it has no effect.
//
// # What counts as uncertain
//
// Contexts: only a variable, a field, a method Context of a variable, Background and TODO are
// known. What is derived from one of these by package context is known as well, and so is a
// variable of the function that is set once to one of these. Anything that is set again, or whose
// address is taken, is uncertain.
//
// Work: a function that can't fail is hardly work. One that belongs to this library, that ends
// something (Close, Shutdown, Rollback) or that only asks about the context may need another
// context. So may whatever a defer runs.
//
// The hold: work that asks the Hold whether it is lost is protected. So may be work of code that
// gets the Hold, in whichever way.
//
// Branches: if the error of Lock is not nil, there is no lock, so nothing is reported where it may
// not be nil.
package main
