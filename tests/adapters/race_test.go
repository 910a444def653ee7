//go:build race

package adapters_test

const underRaceDetector = true
