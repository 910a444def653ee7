// Package load is the half of the benchmark that runs in a process of its own for each contestant: it opens sessions,
// runs workers that lock and unlock, and reports the times. The programs below testdata do exactly the same in Java and
// Python, so that every contestant is measured by one method and one clock: CLOCK_MONOTONIC, which all processes of a
// machine share.
//
// # Protocol
//
// Commands are lines on standard input, answers lines on standard output; words are separated by single spaces, times
// are nanoseconds of CLOCK_MONOTONIC. SERVERS is host:port,host:port,…; client i uses the one server (i+OFFSET) mod n,
// so that all contestants of a round use the same servers. ROOT is a path; lock i is ROOT/i.
//
//	run SERVERS OFFSET TIMEOUT-MS ROOT CLIENTS WORKERS LOCKS WARM-MS RUN-MS
//		CLIENTS sessions with WORKERS threads each lock and unlock without a pause; worker i uses lock i mod LOCKS.
//		Answers: opened; start T, after the warm-up; end T; and when all workers have come to an end, for every cycle,
//		op LOCK ASKED GOT LEAVING LEFT; done. The warm-up and the time between start and end last longer than asked for
//		if they have to: for as many cycles as there are locks, or a twentieth of the workers.
//	park SERVERS OFFSET TIMEOUT-MS ROOT CLIENTS WORKERS
//		The first worker holds lock 0 and all others wait for it. Answers: opened; held T.
//	measure
//		Answers: memory BYTES, the heap (and stacks, where they are known) after a collection, less what it was before
//		the waiters came; −1 where it can't be known.
//	drain
//		The holder unlocks, and each of the others when its turn comes. Answers: op …, done.
//	hold SERVERS OFFSET TIMEOUT-MS ROOT
//		Takes lock 0. Answers: opened; held T. It is kept until drain.
//
// A contestant whose protocol the benchmark can't read on the wire appends, after start, end, memory and drain's done,
// the number of requests that its clients have sent and of notifications that they have received so far.
//
// Any command may be answered by error TEXT instead. The end of the input ends the program.
package load
