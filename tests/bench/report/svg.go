package report

import (
	"cmp"
	"fmt"
	"html"
	"slices"
	"strings"

	"github.com/zklock/locker/tests/bench/match"
)

// The drawing is a panel for each of these settings, and in it a bar for each contestant: its
// cycles a second.
var drawn = []string{"alone", "sixteen", "sixteen-1ms", "crowd", "crowd-1ms", "locks"}

// Sizes in pixels.
const (
	width      = 760
	labelWidth = 270
	barHeight  = 16
	rowHeight  = 22
	panelHead  = 40
	panelGap   = 14
	numberRoom = 120
)

// style has colours that can be read on white and on black. A browser that shows the drawing as an
// image applies the media query to the system's preference.
const style = `
text{font:13px system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;fill:#24292f}
.head{font-weight:600}.small{font-size:11px;fill:#57606a}
.floor{fill:#9aa4af}.ours{fill:#1f6feb}.other{fill:#c8873a}
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.small{fill:#9198a1}.floor{fill:#6e7681}.ours{fill:#4493f8}.other{fill:#d29922}}
`

// bar is one contestant in one panel.
type bar struct {
	title, class string
	rate         float64
}

// SVG draws the rates: one file, without anything from outside, on no background.
func SVG(r *match.Result) []byte {
	var b strings.Builder
	y := 0
	for _, name := range drawn {
		i := slices.IndexFunc(r.Settings, func(s match.Setting) bool { return s.Name == name })
		if i < 0 {
			continue
		}
		if bars := barsOf(r, r.Settings[i]); len(bars) > 0 {
			y = panel(&b, y, r.Settings[i].Title, bars)
		}
	}
	where := "in memory, without a disk"
	if r.Servers.Disk != "" {
		where = "which wait for a disk"
	}
	for _, line := range []string{
		fmt.Sprintf("Lock and unlock, cycles a second, longer is better: medians of %d rounds by turns.",
			r.Rounds),
		fmt.Sprintf("Three servers on the same machine, %s. %s", where, r.Machine),
	} {
		fmt.Fprintf(&b, `<text class="small" x="0" y="%d">%s</text>`+"\n", y+12,
			html.EscapeString(line))
		y += 18
	}
	y += 2
	var out strings.Builder
	fmt.Fprintf(&out,
		`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img">`+"\n", width, y, width, y)
	fmt.Fprintf(&out,
		"<title>Lock and unlock, cycles a second</title>\n<style>%s</style>\n%s</svg>\n", style, b.String())
	return []byte(out.String())
}

// barsOf leaves out WithLocalHandoff, which would dwarf all others.
func barsOf(r *match.Result, s match.Setting) []bar {
	classes := map[string]string{match.Floor: "floor", "zklock": "ours"}
	var bars []bar
	for _, c := range r.Contestants {
		if v := middle(r, s, c).Rate; v > 0 && c.Name != "local" {
			bars = append(bars, bar{c.Title, cmp.Or(classes[c.Name], "other"), v})
		}
	}
	return bars
}

// panel draws below y and returns where it ends.
func panel(b *strings.Builder, y int, title string, bars []bar) int {
	fmt.Fprintf(b, `<text class="head" x="0" y="%d">%s</text>`+"\n", y+panelHead/2,
		html.EscapeString(title))
	most := slices.MaxFunc(bars, func(a, b bar) int { return int(a.rate - b.rate) }).rate
	for i, one := range bars {
		top := y + panelHead - 10 + i*rowHeight
		length := max(1, int(one.rate/most*(width-labelWidth-numberRoom)))
		fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="end">%s</text>`, labelWidth-8,
			top+barHeight-3, html.EscapeString(one.title))
		fmt.Fprintf(b, `<rect class="%s" x="%d" y="%d" width="%d" height="%d" rx="2"/>`, one.class,
			labelWidth, top, length, barHeight)
		fmt.Fprintf(b, `<text x="%d" y="%d">%s</text>`+"\n", labelWidth+length+6, top+barHeight-3,
			count(one.rate))
	}
	return y + panelHead - 10 + len(bars)*rowHeight + panelGap
}
