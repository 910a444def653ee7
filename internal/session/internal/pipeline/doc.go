// Package pipeline is the protocol of one connection without the connection. ZooKeeper answers the
// requests of a connection strictly in order, so a Pipeline has two queues: requests to be written,
// and requests that wait for their replies. Each reply must belong to the head of the second.
//
// It is a machine without I/O. Requests go in (Add), and the bytes to write next come out (Next). A
// reply's header goes in (Reply), and the request that it answers comes out. What a reply means for
// each call that waits for it is a list of Completions (Split). The connection fails (Abort), and
// what was in the pipeline is sorted into what was never sent and what has no reply.
//
// It decides which request is written next, which are sent together (group.go, lists.go), how many
// are on their way (window), and which numbers they have. It knows neither a socket nor the clock:
// it is told the time. It does not know what a call does with its outcome, and whether a request is
// sent again on the next connection is decided above; SortOut says what became of it on this one.
//
// It starts no goroutines. A Pipeline is guarded by the mutex of its connection, and none of its
// methods blocks or takes longer than the requests concerned are many. A Request belongs to the
// call that made it, except from Add until it is completed, when it belongs to the Pipeline.
package pipeline
