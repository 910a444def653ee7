//go:build unix

package lockhttp_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/chromium"
	"github.com/zklock/locker/internal/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zklock/lockhttp"
	"github.com/zklock/locker/zktest"
)

// The page in a real browser, at the widths of a phone and of a desk, with names that others chose with bad intent.
func TestStatusInABrowser(t *testing.T) {
	b := chromium.Start(t)
	zoo := zktest.Run(t)
	c := locktest.Dial(t, zoo)
	plant(t, zoo, c, "/locks/a")
	for text := range hostile {
		if !strings.Contains(text, "\xff") {
			locktest.Lock(t, c.Mutex(zklock.KeyPath("/locks/mine", text), zklock.WithOwner(text)))
		}
	}
	_, err := c.MultiLock([]string{"/locks/account/1", "/locks/account/2"}).Lock(locktest.Soon(t))
	require.NoError(t, err)
	waitAside(t, c, "/locks/account/2")
	mux := http.NewServeMux()
	mux.Handle("/ops/debug/locks", lockhttp.StatusHandler(c))
	web := httptest.NewServer(mux)
	t.Cleanup(web.Close)
	here := web.URL + "/ops/debug/locks"

	for _, width := range []int{320, 390, 900, 1280} {
		b.Resize(t, width, width < 800)
		b.Open(t, here+"?path=%2Flocks%2Fa")
		require.LessOrEqual(t, chromium.Eval[int](t, b, "document.documentElement.scrollWidth"), width, "scrolls sideways at %d", width)
		cell := "table-cell"
		if width < 800 {
			cell = "flex" // a card for each row
		}
		require.Equal(t, cell, chromium.Eval[string](t, b, "getComputedStyle(document.querySelector('td')).display"), "the style sheet applies")
	}

	// What others wrote is text, and nothing else.
	require.True(t, strings.HasPrefix(chromium.Eval[string](t, b, "document.title"), "Locks of "))
	require.Zero(t, chromium.Eval[int](t, b, "document.querySelectorAll('script, img, iframe, object, embed, link, [onerror], [onload]').length"))
	require.Equal(t, 1, chromium.Eval[int](t, b, "document.querySelectorAll('h1').length"))
	require.Zero(t, chromium.Eval[int](t, b, "performance.getEntriesByType('resource').length"), "no other file is loaded")
	data, owners := b.Texts(t, "#queue td[data-label=data]"), b.Texts(t, "#holds td[data-label=owner]")
	for text, want := range hostile {
		require.Contains(t, data, want)
		if !strings.Contains(text, "\xff") {
			require.Contains(t, owners, want)
		}
	}
	require.Empty(t, b.Logged, "nothing was refused, nothing failed")

	// The policy is in force: a script that got in would not run.
	require.True(t, chromium.Eval[bool](t, b, `(() => { const s = document.createElement('script'); s.textContent = 'window.ran = true';
		document.body.append(s); return window.ran === undefined })()`))

	// Below its prefix, links and form lead back to the page.
	b.Open(t, here)
	chromium.Eval[any](t, b, "void document.querySelector('#waits a').click()")
	b.Until(t, "location.search === '?path=%2flocks%2faccount%2f2' && document.readyState === 'complete'")
	require.Equal(t, "/ops/debug/locks", chromium.Eval[string](t, b, "location.pathname"))
	require.Equal(t, "1 holds\n2 waits", b.Texts(t, "#queue td[data-label=place]"))
	chromium.Eval[any](t, b, "document.querySelector('input[name=path]').value = '/locks/none', void document.querySelector('button').click()")
	b.Until(t, "location.search === '?path=%2Flocks%2Fnone' && document.readyState === 'complete'")
	require.Contains(t, b.Texts(t, "#queue p"), "Nobody is in line at /locks/none.")

	const back = "getComputedStyle(document.body).backgroundColor"
	b.Scheme(t, "light")
	light := chromium.Eval[string](t, b, back)
	b.Scheme(t, "dark")
	require.NotEqual(t, light, chromium.Eval[string](t, b, back))
}
