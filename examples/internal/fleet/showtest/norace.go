//go:build !race

package showtest

const raceFlag = "-race=false"
