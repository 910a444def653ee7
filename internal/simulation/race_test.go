//go:build race

package simulation_test

// raceFactor makes the run under the race detector, which is in the ordinary run as well, half as long.
const raceFactor = 2
