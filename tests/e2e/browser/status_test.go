// Package browser uses the status page in a browser.
package browser

import (
	"context"
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zklock/lockhttp"
	"github.com/zklock/locker/zktest"
)

var picture = flag.String("picture", "", "write the status page's picture into this file")

//go:embed look.js
var look string

// browse starts a browser, which ends with the test, and returns its context. The test fails if the
// browser logs anything.
func browse(t *testing.T) context.Context {
	t.Helper()
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.WindowSize(1100, 900))
	if os.Getuid() == 0 {
		opts = append(opts, chromedp.NoSandbox) // the browser refuses to run as root with it
	}
	bounded, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	started, stop := chromedp.NewExecAllocator(bounded, opts...)
	t.Cleanup(stop)
	ctx, end := chromedp.NewContext(started)
	t.Cleanup(end)
	var mu sync.Mutex
	var said []string
	require.NoError(t, chromedp.Listen(ctx, func(event any) {
		mu.Lock()
		defer mu.Unlock()
		switch e := event.(type) {
		case *log.EventEntryAdded:
			said = append(said, e.Entry.Text+" "+e.Entry.URL)
		case *runtime.EventExceptionThrown:
			said = append(said, e.ExceptionDetails.Text)
		}
	}), "is there a browser? chromium, or google-chrome")
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		require.Empty(t, said)
	})
	return ctx
}

func do(t *testing.T, ctx context.Context, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	require.NoError(t, chromedp.Do(ctx, steps...))
}

func get[T any](t *testing.T, ctx context.Context, what chromedp.Action[T]) T {
	t.Helper()
	got, err := chromedp.Run(ctx, what)
	require.NoError(t, err)
	return got
}

// shows waits until the element has the text.
func shows(t *testing.T, ctx context.Context, element chromedp.CSS, want string) {
	t.Helper()
	require.Eventually(t, func() bool {
		// fails while the next page is loaded
		text, err := chromedp.Run(ctx, chromedp.Text(element))
		return err == nil && strings.Contains(text, want)
	}, time.Minute, 10*time.Millisecond, "%s does not show %q", element, want)
}

// link clicks the link with this text.
func link(text string) chromedp.Action[chromedp.Void] {
	return chromedp.Click(fmt.Sprintf("//a[normalize-space()=%q]", text))
}

// An operator looks at the status page, at a lock's queue, and at a lock whose name he types. The
// page can be read in every window and colour scheme, runs no script, and what others wrote into
// znodes stays text.
func TestAnOperatorUsesTheStatusPage(t *testing.T) {
	srv := zktest.Run(t)
	dial := func() *zklock.Client {
		c, err := zklock.Dial(locktest.Within(t, time.Minute), srv.Addr())
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		return c
	}
	c, other := dial(), dial()
	hold := func(c *zklock.Client, path, owner string) {
		_, _, err := c.Mutex(path, zklock.WithOwner(owner)).Lock(locktest.Within(t, time.Minute))
		require.NoError(t, err)
	}
	var waits sync.WaitGroup
	wait := func(c *zklock.Client, path, owner string) {
		waits.Go(func() {
			_, _, err := c.Mutex(path, zklock.WithOwner(owner)).Lock(t.Context())
			require.ErrorIs(t, err, context.Canceled)
		})
		require.Eventually(t, func() bool {
			return slices.ContainsFunc(c.Status().Waits, func(w zklock.LockInfo) bool {
				return w.Path == path && w.HolderOwner != ""
			})
		}, time.Minute, time.Millisecond)
	}
	const hostile = `<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>`
	hold(c, "/locks/rebuild-index", "billing")
	hold(c, "/locks/reports/2026-11", "billing")
	hold(other, "/locks/invoices", "mailer")
	wait(c, "/locks/invoices", "billing")
	wait(other, "/locks/rebuild-index", "mailer")
	wait(other, "/locks/reports/2026-11", hostile)
	t.Cleanup(waits.Wait) // t.Context has ended by then
	web := httptest.NewServer(lockhttp.StatusHandler(c))
	defer web.Close()

	ctx := browse(t)
	do(t, ctx, chromedp.Navigate(web.URL))
	shows(t, ctx, "#session", "connected")
	shows(t, ctx, "#holds h2", "Held here: 2")
	shows(t, ctx, "#waits tbody", "mailer")

	do(t, ctx, link("/locks/rebuild-index"))
	shows(t, ctx, "#queue", "2 in line at /locks/rebuild-index")
	shows(t, ctx, "#queue tbody", "holds")
	if *picture != "" {
		require.NoError(t, os.WriteFile(*picture, get(t, ctx, chromedp.FullScreenshot(100)), 0o644))
	}

	do(t, ctx, chromedp.SetValue(chromedp.CSS("input[name=path]"), "/locks/none"),
		chromedp.Click(chromedp.CSS("button")))
	shows(t, ctx, "#queue", "Nobody is in line at /locks/none")

	const reloads = chromedp.CSS("meta[http-equiv=refresh]")
	do(t, ctx, link("every 5 s"), chromedp.WaitReady(reloads),
		chromedp.Navigate(web.URL+"?path=/locks/rebuild-index&refresh=1"))
	at := get(t, ctx, chromedp.Text(chromedp.CSS("time")))
	require.Eventually(t, func() bool {
		now, err := chromedp.Run(ctx, chromedp.Text(chromedp.CSS("time")))
		return err == nil && now != at
	}, time.Minute, 10*time.Millisecond, "the page does not load itself again")
	do(t, ctx, chromedp.Navigate(web.URL+"?path=/locks/rebuild-index&refresh=3600"), link("stop"),
		chromedp.WaitNotPresent(reloads))

	do(t, ctx, chromedp.Navigate(web.URL+"?path=/locks/reports/2026-11"))
	shows(t, ctx, "#queue tbody", hostile)
	require.True(t, strings.HasPrefix(get(t, ctx, chromedp.Title()), "Locks of "))
	require.Zero(t, get(t, ctx, chromedp.Evaluate[int]("document.scripts.length")))

	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{320, 700, 1100, 2000} {
			_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia,
				emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
					{Name: "prefers-color-scheme", Value: scheme},
				}})
			require.NoError(t, err)
			do(t, ctx, chromedp.EmulateViewport(width, 900))
			require.Empty(t, get(t, ctx, chromedp.Evaluate[[]string](look)), "%s, %d pixels",
				scheme, width)
		}
	}

	do(t, ctx, link("JSON"))
	shows(t, ctx, "body", `"waiting"`)
	body := get(t, ctx, chromedp.Text(chromedp.CSS("body")))
	require.True(t, json.Valid([]byte(body)), body)
}
