package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAges(t *testing.T) {
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
	var all []string
	for _, n := range []int{1, 2, 3, 4, 11, 12, 13, 21, 102, 113} {
		all = append(all, ordinal(n))
	}
	require.Equal(t, "1st 2nd 3rd 4th 11th 12th 13th 21st 102nd 113th", strings.Join(all, " "))
}
