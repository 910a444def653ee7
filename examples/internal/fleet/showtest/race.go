//go:build race

package showtest

// raceFlag makes the program one with the race detector, as the test is, whose dependencies are compiled already.
const raceFlag = "-race=true"
