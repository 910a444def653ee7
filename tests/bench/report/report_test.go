package report_test

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/bench/match"
	"github.com/zklock/locker/tests/bench/report"
	"github.com/zklock/locker/tests/bench/stats"
)

// result is three rounds of made-up figures: the floor's rate, ours and zk.Lock's.
func result() *match.Result {
	r := &match.Result{Config: match.Config{Rounds: 3, Run: time.Second},
		Machine: "a <small> machine", Left: []string{"left out: Kazoo Lock: not there"},
		Settings: match.Settings[:3:3], Cells: map[string][]stats.Figures{}}
	for name, rates := range map[string][]float64{match.Floor: {1000, 2000, 1500},
		"zklock": {990, 1960, 1200}, "zk.Lock": {500, 1000, 900}} {
		for _, s := range r.Settings {
			for _, rate := range rates {
				key := match.Key(s, match.Contestant{Name: name})
				f := stats.Figures{Rate: rate, Acquire: 2 * time.Millisecond,
					HandOver: time.Duration(s.Clients-1) * time.Millisecond}
				if name == "zklock" {
					f.CPU, f.Allocations, f.SystemCalls = time.Duration(
						rate)*time.Microsecond, 1043, 12.34
				}
				r.Cells[key] = append(r.Cells[key], f)
			}
		}
	}
	for _, c := range match.Contestants {
		if len(r.Cells[match.Key(r.Settings[0], c)]) > 0 {
			r.Contestants = append(r.Contestants, c)
		}
	}
	return r
}

func TestTextShowsMedians(t *testing.T) {
	text := report.Text(result())
	require.Regexp(t,
		`(?m)^\| one client alone +\| +1,500 \(2\.00 ms\) \| +1,200 \(2\.00 ms\) \| +900 \(2\.00 ms\) \|$`, text)
	require.Regexp(t,
		`(?m)^\| 2 clients, one lock +\| .* \| +1,200 \(1\.00 ms\) \| +900 \(1\.00 ms\) \|$`, text)
	require.Contains(t, text, "left out: Kazoo Lock: not there")
	require.Regexp(t, `(?m)^\| a cycle costs the client +\| +zklock \|$`, text,
		"who reports no cost has no column")
	require.Regexp(t, `(?m)^\| one client alone +\| +1200 µs, 1,043, 12\.3 \|$`, text)
}

func TestDrawingIsWellFormedAndItsBarsAreInProportion(t *testing.T) {
	svg := string(report.SVG(result()))
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
	}
	require.Contains(t, svg, "a &lt;small&gt; machine")
	require.Regexp(t, `class="floor" x="270" y="30" width="370"`, svg, "the longest")
	require.Regexp(t, `class="ours" x="270" y="52" width="296"`, svg, "1200 to 1500")
	require.Regexp(t, `class="other" x="270" y="74" width="222"`, svg, "900 to 1500")
}
