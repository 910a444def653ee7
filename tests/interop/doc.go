// Package interop holds no code, only tests that put other clients' locks beside ours, on one path
// of a real ensemble: Curator's InterProcessMutex and InterProcessReadWriteLock (Java),
// go-zookeeper's zk.Lock, and Kazoo's Lock (Python) set up to use the same names.
//
// Every kind of client is a process of its own, ours too, so that each can be killed like a
// program. The processes are puppets: each line on their standard input is a step that they make
// (see testdata) and answer with a line. So the test alone knows which contenders are inside, and
// asks the ensemble, too.
//
// Curator and Kazoo come from Debian's packages. The tests install nothing; where a package is
// missing they fail and name it.
package interop
