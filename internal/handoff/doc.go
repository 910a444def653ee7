// Package handoff lets the goroutines of one process that want one mutex share one place in the ensemble's queue. They
// wait in a queue of their own, and a turn is passed from one to the next inside the process, without a request.
//
//	Queues  the local queues of a client
//	queue   the local queue of one lock: the calls that wait here
//	Turn    the process's ticket while it holds, from the moment at which it does until it is given up; the holds of one
//	        turn follow one another on one znode, and so with one token
//
// Safety. Inside the process exclusion is queue.mu: a turn has one holder, whose context has ended before the next is
// chosen. Between processes, a turn is as safe as any other hold: its znode exists and is first, and its session's
// lease is checked before each hold begins. If anything but a release ends a hold, the turn ends with it: it is never handed
// on, and the next turn has its own znode and token.
//
// Fairness. While calls wait here, a goroutine of the turn watches the directory for contenders of other processes
// (Turn.watch). As long as it does not know, and once it has seen one, the turn is handed on n times at most, and then, or
// contendedLimit after one was seen, the znode is deleted; local waiters queue again, behind those of other processes.
//
// Source: lock cohorting (Dice, Marathe, Shavit: Lock Cohorting, PPoPP 2012): a local queue in front of a global lock,
// with a bound on the local hand-overs.
//
// Order of mutexes: queue.mu is taken first, then that of Queues, of the client (Config.Go), of the ticket or of its
// session. No function of a caller's is called under any of them.
package handoff
