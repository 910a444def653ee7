//go:build unix && !js

package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/chromium"
	"github.com/zklock/locker/internal/playground"
)

const over = "document.body.dataset.ended === 'true'"

// wholePage is what build writes.
var wholePage = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "playground-test-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // of the system's folder for such
	file := filepath.Join(dir, "playground.html")
	if err := build(file); err != nil {
		return nil, err
	}
	return os.ReadFile(file)
})

// built returns a file with the page, which is built once.
func built(t *testing.T) string {
	t.Helper()
	text, err := wholePage()
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "playground.html")
	require.NoError(t, os.WriteFile(file, text, 0o644))
	return file
}

// Each story plays to its end in a browser, and the page shows the same as a run of that story outside of a browser.
func TestAStoryRunsInABrowserAsItDoesInATest(t *testing.T) {
	file := built(t) // first, since it may take long, and the browser has a time limit
	b := chromium.Start(t)
	for _, script := range playground.Scripts {
		b.Open(t, "file://"+file+"#"+script.Name)
		ready(t, b, script.Name)
		chromium.Eval[any](t, b, "void document.querySelector('#end').click()")
		b.Until(t, over)
		want, err := os.ReadFile("../../../docs/timelines/" + script.Name + ".svg")
		require.NoError(t, err)
		require.Equal(t, string(want), chromium.Eval[string](t, b, "play.stage.picture(3600)"), script.Name)
		end := told(t, script)
		require.Equal(t, fmt.Sprintf("Last writer: %s; highest token %d; %d writes accepted, %d refused, %d lost",
			cmp.Or(end.Store.Writer, "none"), end.Store.Token, end.Store.Taken, end.Store.Refused, end.Store.Lost), b.Texts(t, "#store"))
		require.Empty(t, b.Texts(t, "#guarantees .broken"))
	}

	// Other libraries' behaviour, in the same page.
	b.Open(t, "file://"+file+"#cut-holder")
	ready(t, b, "cut-holder")
	chromium.Eval[any](t, b, "void document.querySelector('#clock').click()")
	b.Until(t, "play && play.go.argv.includes('noclock')")
	chromium.Eval[any](t, b, "void document.querySelector('#end').click()")
	b.Until(t, over)
	require.Contains(t, b.Texts(t, "#guarantees .broken"), "A and B held together for")
	require.Empty(t, b.Logged)
}

// ready waits for a story's stage.
func ready(t *testing.T, b *chromium.Browser, story string) {
	t.Helper()
	b.Until(t, fmt.Sprintf("play && play.story === %q && document.querySelector('#clients').children.length > 0", story))
}

// told is how a story ends outside of the browser.
func told(t *testing.T, script playground.Script) (end playground.State) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, err := playground.Open(script, playground.Rules{})
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		require.NoError(t, s.Play(script))
		end = s.State()
	})
	return end
}

// The user cuts off, stops, kills and restarts clients, expires a session and deposes the leader.
func TestTheGuaranteesHoldWhateverAUserDoesInThePage(t *testing.T) {
	file := built(t) // first, since it may take long, and the browser has a time limit
	b := chromium.Start(t)
	b.Open(t, "file://"+file)
	ready(t, b, "free")
	chromium.Eval[any](t, b, "void (document.querySelector('#speed').value = '16')")
	press := func(client int, what string) {
		t.Helper()
		button := fmt.Sprintf("document.querySelectorAll('.client')[%d].querySelector('[data-act=%s]')", client, what)
		b.Until(t, button+" && !"+button+".disabled")
		chromium.Eval[any](t, b, "void "+button+".click()")
	}
	state := func(client int) string {
		return fmt.Sprintf("document.querySelectorAll('.client .state')[%d].textContent", client)
	}
	for i := range 5 {
		press(i, "lock")
		b.Until(t, state(i)+" !== 'idle'")
	}
	b.Until(t, state(0)+" === 'holds'")
	press(0, "cut")
	b.Until(t, state(1)+" === 'holds'")
	press(1, "stop")
	b.Until(t, state(2)+" === 'holds'")
	b.Until(t, "play.state().Store.Writer === 'C'")
	press(1, "resume")
	press(2, "kill")
	b.Until(t, state(3)+" === 'holds'")
	press(0, "mend")
	press(2, "restart")
	press(3, "expire")
	b.Until(t, state(4)+" === 'holds'")
	b.Until(t, "document.querySelector('#servers button').textContent === 'depose'")
	chromium.Eval[any](t, b, "void document.querySelector('#servers button').click()")
	b.Until(t, "document.querySelector('#servers .state').textContent.includes('cut off')")
	press(4, "unlock")
	b.Until(t, state(4)+" === 'idle'")
	b.Until(t, "play.state().Store.Refused >= 1")
	require.Empty(t, b.Texts(t, "#guarantees .broken"))

	for _, width := range []int{320, 390, 900, 1280} {
		b.Resize(t, width, width < 800)
		require.LessOrEqual(t, chromium.Eval[int](t, b, "document.documentElement.scrollWidth"), width, "scrolls sideways at %d", width)
		if dir := os.Getenv("PLAYGROUND_SHOTS"); dir != "" {
			for _, scheme := range []string{"light", "dark"} {
				b.Scheme(t, scheme)
				time.Sleep(300 * time.Millisecond)
				b.Screenshot(t, fmt.Sprintf("%s/%d-%s.png", dir, width, scheme))
			}
		}
	}
	const back = "getComputedStyle(document.body).backgroundColor"
	b.Scheme(t, "light")
	light := chromium.Eval[string](t, b, back)
	b.Scheme(t, "dark")
	require.NotEqual(t, light, chromium.Eval[string](t, b, back))
	require.Zero(t, chromium.Eval[int](t, b, "performance.getEntriesByType('resource').length"), "no other file is loaded")
	require.Empty(t, b.Logged)
}
