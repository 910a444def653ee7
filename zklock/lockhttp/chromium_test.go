//go:build unix

package lockhttp_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// browser is a headless Chromium with one page, driven over its DevTools pipe.
type browser struct {
	in      *os.File
	out     *bufio.Reader
	last    int
	session string
	logged  []string // what the browser complained of: texts of its log, and exceptions
}

// startBrowser starts Chromium, or skips the test where there is none. It ends with the test.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	program := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			program = found
			break
		}
	}
	if program == "" {
		t.Skip("needs Chromium (Debian: apt-get install chromium)")
	}
	profile, err := os.MkdirTemp("", "lockhttp-chromium-")
	require.NoError(t, err)
	theirIn, in, err := os.Pipe()
	require.NoError(t, err)
	out, theirOut, err := os.Pipe()
	require.NoError(t, err)
	ctx, kill := context.WithTimeout(context.Background(), 2*webBound) // a browser that hangs: its pipe ends, and so does the test
	cmd := exec.CommandContext(ctx, program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--no-first-run", "--disable-extensions", "--disable-background-networking", "--remote-debugging-pipe",
		"--user-data-dir="+profile, "about:blank")
	cmd.ExtraFiles = []*os.File{theirIn, theirOut} // 3 and 4, as the switch says
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // with its helpers
	cmd.WaitDelay = webBound
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		kill()
		if err := cmd.Wait(); err != nil && cmd.ProcessState == nil {
			t.Error(err)
		}
		// Helpers that were killed too may be on their way out, with a file still to write.
		for deadline := time.Now().Add(webBound); os.RemoveAll(profile) != nil && time.Now().Before(deadline); {
			time.Sleep(10 * time.Millisecond)
		}
		require.NoError(t, errors.Join(in.Close(), out.Close()))
		if t.Failed() {
			t.Logf("chromium's messages:\n%s", stderr.String())
		}
	})
	require.NoError(t, errors.Join(theirIn.Close(), theirOut.Close()))
	b := &browser{in: in, out: bufio.NewReader(out)}

	var target struct{ TargetID string }
	b.call(t, "Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.call(t, "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		b.call(t, domain+".enable", nil, nil)
	}
	return b
}

// call has the browser carry out a command, and reads its result.
func (b *browser) call(t *testing.T, method string, params map[string]any, result any) {
	t.Helper()
	b.last++
	message := map[string]any{"id": b.last, "method": method}
	if params != nil {
		message["params"] = params
	}
	if b.session != "" {
		message["sessionId"] = b.session
	}
	text, err := json.Marshal(message)
	require.NoError(t, err)
	_, err = b.in.Write(append(text, 0))
	require.NoError(t, err, method)
	for {
		text, err := b.out.ReadBytes(0)
		require.NoError(t, err, "waiting for the answer to %s", method)
		var answer struct {
			ID     int
			Method string
			Params json.RawMessage
			Result json.RawMessage
			Error  json.RawMessage
		}
		require.NoError(t, json.Unmarshal(bytes.TrimSuffix(text, []byte{0}), &answer))
		switch {
		case answer.Method == "Log.entryAdded", answer.Method == "Runtime.exceptionThrown":
			b.logged = append(b.logged, string(answer.Params))
		case answer.ID == b.last:
			require.Empty(t, string(answer.Error), method)
			if result != nil {
				require.NoError(t, json.Unmarshal(answer.Result, result))
			}
			return
		}
	}
}

// eval returns the value of a JavaScript expression in the page, as the debugger sees it: a page that forbids scripts
// forbids this as little as it forbids a debugger.
func eval[T any](t *testing.T, b *browser, expression string) T {
	t.Helper()
	var answer struct {
		Result struct {
			Value       T
			Description string
		}
		ExceptionDetails json.RawMessage
	}
	b.call(t, "Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true}, &answer)
	require.Empty(t, string(answer.ExceptionDetails), expression)
	return answer.Result.Value
}

// until waits until an expression is true.
func (b *browser) until(t *testing.T, expression string) {
	t.Helper()
	for deadline := time.Now().Add(webBound); !eval[bool](t, b, expression); {
		require.True(t, time.Now().Before(deadline), "still not so after %v: %s", webBound, expression)
		time.Sleep(20 * time.Millisecond)
	}
}

// open loads a page and waits until it is there.
func (b *browser) open(t *testing.T, url string) {
	t.Helper()
	var answer struct{ ErrorText string }
	b.call(t, "Page.navigate", map[string]any{"url": url}, &answer)
	require.Empty(t, answer.ErrorText)
	b.until(t, fmt.Sprintf("location.href === %q && document.readyState === 'complete'", url))
}

// resize makes the window as wide as a device's.
func (b *browser) resize(t *testing.T, width int, mobile bool) {
	t.Helper()
	b.call(t, "Emulation.setDeviceMetricsOverride",
		map[string]any{"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": mobile}, nil)
	b.until(t, fmt.Sprintf("innerWidth >= %d", width)) // more, should the page not fit
}

// scheme turns the system's colours light or dark.
func (b *browser) scheme(t *testing.T, scheme string) {
	t.Helper()
	b.call(t, "Emulation.setEmulatedMedia", map[string]any{"features": []any{
		map[string]any{"name": "prefers-color-scheme", "value": scheme}}}, nil)
	b.until(t, fmt.Sprintf("matchMedia('(prefers-color-scheme: %s)').matches", scheme))
}

// texts returns the texts of all elements that a selector finds.
func (b *browser) texts(t *testing.T, selector string) string {
	t.Helper()
	return strings.Join(eval[[]string](t, b, fmt.Sprintf("Array.from(document.querySelectorAll(%q), e => e.textContent)", selector)), "\n")
}
