package main

import (
	"fmt"
	"time"

	"github.com/zklock/locker/internal/text"
)

// clean returns a text of foreign origin, made safe for a terminal and for one line.
func clean(s string) string { return text.Clean(s) }

// short is clean, and cuts the text to at most n characters.
func short(s string, n int) string { return text.Short(s, n) }

// age returns the text for how long something has lasted, in two units at most.
func age(d time.Duration) string {
	d = max(d, 0).Truncate(time.Second)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
}

func ordinal(n int) string { return text.Ordinal(n) }
