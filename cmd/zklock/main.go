// Command zklock takes locks on a ZooKeeper ensemble for shell scripts, cron jobs and operators.
//
//	zklock run --wait 30s /locks/rebuild-index -- ./rebuild.sh
//	zklock ls /locks
//
// The command runs while the lock is held, and is stopped before another client can have the lock:
// see zklock help safety.
package main

import "os"

func main() { os.Exit(execute(os.Args[1:])) }
