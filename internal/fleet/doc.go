// Package fleet runs thousands of the library's clients, in three regions, on one in-process ensemble in simulated
// time. It measures the load that locks put on the ensemble, how long a hand-over takes, and from which size on a fleet
// should be split over several ensembles. Its table is RESULT.md; docs/capacity.md draws the conclusions.
//
//	go test ./internal/fleet -run Capacity -full -timeout 60m -o RESULT.md
//
// Messages between a region and the leader take time; inside a region they take none, and servers answer at once. So
// the figures are numbers of requests and the effect of distance, and not the speed of a machine.
package fleet
