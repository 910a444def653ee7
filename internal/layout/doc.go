// Package layout holds no code, only the test that keeps this module's packages in their order: imports run
// cmd, examples → zklock → recipe → session → go-zookeeper/zk, and zktest stands beside them on the standard library
// alone.
package layout
