// Package fleet has the library's clients by the thousand, in three regions, on one in-process ensemble in simulated time: what
// locks cost the ensemble, how long a hand-over takes, and from which size on a fleet should be split over several. Its table
// is RESULT.md; docs/capacity.md says what follows from it.
//
//	go test ./internal/fleet -run Capacity -full -timeout 60m -o RESULT.md
//
// Messages between a region and the leader travel; inside a region they take no time, and servers answer at once. So the
// figures are how many requests there are and what distance costs, and not how fast a machine is.
package fleet
