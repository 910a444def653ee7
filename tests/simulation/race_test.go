//go:build race

package simulation_test

// raceFactor divides the time for a run with the race detector. Histories are checked in the
// ordinary run, a thousand of them; this one looks for races, which show in most seeds if in any:
// all seeds use the same few paths of the code.
const raceFactor = 6
