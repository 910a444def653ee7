//go:build race

package simulation_test

// raceFactor divides the time for a run with the race detector.
const raceFactor = 2
