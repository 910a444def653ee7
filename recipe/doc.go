// Package recipe decides who holds a lock at a ZooKeeper ensemble, and says what each kind of lock
// is. Its functions are pure: they know a lock's directory by a list of its children, and read
// nothing themselves. Package internal/queue makes the requests, and describes the algorithm around
// the decision.
//
// Decide decides for a contender that is in line, and Foresee for a try. The other functions are
// for onlookers, which see a line from outside.
package recipe
