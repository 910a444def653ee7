//go:build !race

package simulation_test

const raceFactor = 1
