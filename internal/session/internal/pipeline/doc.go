// Package pipeline is the protocol of one connection without the connection. ZooKeeper answers the
// requests of a connection strictly in order, so a Pipeline has two queues: requests to be written,
// and requests that wait for their replies. Each reply must belong to the head of the second.
//
// It is a machine without I/O. Requests go in (Add), and the bytes to write next come out (Next). A
// reply's header goes in (Take), and the request that it answers comes out. What a reply means for
// each call that waits for it is a list of Completions (Split). The connection fails (Abort), and
// what was in the pipeline is sorted into what was never sent and what has no reply.
//
// It decides which request is written next, which are sent together (group.go, lists.go), how many
// are on their way (window), and which numbers they have. It knows neither a socket nor the clock:
// it is told the time. It does not know what a call does with its outcome, and whether a request is
// sent again on the next connection is decided above; SortOut says what became of it on this one.
//
// It starts no goroutines. The mutex of the connection guards all methods of a Pipeline, and none
// of them blocks or takes longer than the requests concerned are many. A Request belongs to
//
//   - the call that made it, until Add or NextAlone;
//   - the Pipeline, until Take, Withdraw or Abort takes it out;
//   - the goroutine that has taken it out, until that completes it;
//   - the call again.
//
// So what deals with requests that have been taken out runs without the mutex: Split, Complete,
// FailForResend, FailUnreadable, Lose, Completion.Deliver and Aborted.Complete. Meanwhile the call
// reads two things of its request: whether it has been completed (Done, Ended) and, when nothing
// can send it any more, whether it was sent (MayBeDone).
package pipeline
