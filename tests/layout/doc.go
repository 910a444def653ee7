// Package layout holds no code, only tests. They keep this module's packages in their order:
// imports run cmd, examples → zklock → internal/queue → internal/session → go-zookeeper/zk, and
// zktest stands beside them on the standard library alone. They keep the links of the pages, and a
// test for each scenario.
package layout
