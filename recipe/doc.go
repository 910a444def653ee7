// Package recipe decides who holds a lock at a ZooKeeper ensemble, and says what each kind of lock is. Its functions are pure:
// they know a lock's directory by a list of its children, and read nothing themselves. Package internal/queue asks the ensemble,
// and describes the algorithm around the decision.
//
// The decision is Decide's. Foresee is for a try, and the rest for onlookers, who see a line from outside.
package recipe
