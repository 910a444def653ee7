package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAgesAreFormatted(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Second:                    "0s",
		59*time.Second + 999999999:      "59s",
		61 * time.Second:                "1m01s",
		2*time.Hour + 5*time.Minute:     "2h05m",
		74*time.Hour + 59*time.Minute:   "3d02h",
		1000*24*time.Hour + time.Second: "1000d00h",
	} {
		require.Equal(t, want, age(d))
	}
}
