//go:build unix

// Package chromium drives a headless Chromium, for tests of pages.
package chromium

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
)

// Browser is a headless Chromium with one page, driven over its DevTools pipe.
type Browser struct {
	in      *os.File
	out     *bufio.Reader
	last    int
	session string
	Logged  []string // the browser's errors, and the page's console messages
}

// bound is enough for a busy machine.
const bound = time.Minute

// Start starts Chromium, or skips the test where there is none. It ends with the test.
func Start(t testing.TB) *Browser {
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
	profile, err := os.MkdirTemp("", "chromium-")
	must(t, err)
	theirIn, in, err := os.Pipe()
	must(t, err)
	out, theirOut, err := os.Pipe()
	must(t, err)
	ctx, kill := context.WithTimeout(context.Background(), 5*bound) // if the browser hangs, its pipe ends, and so does the test
	cmd := exec.CommandContext(ctx, program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--no-first-run", "--disable-extensions", "--disable-background-networking", "--remote-debugging-pipe",
		"--user-data-dir="+profile, "about:blank")
	cmd.ExtraFiles = []*os.File{theirIn, theirOut} // 3 and 4, as the switch says
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // including its helper processes
	cmd.WaitDelay = bound
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	must(t, cmd.Start())
	t.Cleanup(func() {
		kill()
		if err := cmd.Wait(); err != nil && cmd.ProcessState == nil {
			t.Error(err)
		}
		// Killed helpers may still be ending, with a file to write.
		for deadline := time.Now().Add(bound); os.RemoveAll(profile) != nil && time.Now().Before(deadline); {
			time.Sleep(10 * time.Millisecond)
		}
		must(t, errors.Join(in.Close(), out.Close()))
		if t.Failed() {
			t.Logf("chromium's messages:\n%s", stderr.String())
		}
	})
	must(t, errors.Join(theirIn.Close(), theirOut.Close()))
	b := &Browser{in: in, out: bufio.NewReader(out)}

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

// call makes the browser carry out a command, and reads its result.
func (b *Browser) call(t testing.TB, method string, params map[string]any, result any) {
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
	must(t, err)
	_, err = b.in.Write(append(text, 0))
	must(t, err, method)
	for {
		text, err := b.out.ReadBytes(0)
		must(t, err, "waiting for the answer to "+method)
		var answer struct {
			ID     int
			Method string
			Params json.RawMessage
			Result json.RawMessage
			Error  json.RawMessage
		}
		must(t, json.Unmarshal(bytes.TrimSuffix(text, []byte{0}), &answer))
		switch {
		case answer.Method == "Log.entryAdded", answer.Method == "Runtime.exceptionThrown", answer.Method == "Runtime.consoleAPICalled":
			b.Logged = append(b.Logged, string(answer.Params))
		case answer.ID == b.last:
			empty(t, string(answer.Error), method)
			if result != nil {
				must(t, json.Unmarshal(answer.Result, result))
			}
			return
		}
	}
}

// Eval returns the value of a JavaScript expression in the page, as the debugger evaluates it: a page's ban on scripts
// does not apply to the debugger.
func Eval[T any](t testing.TB, b *Browser, expression string) T {
	t.Helper()
	var answer struct {
		Result struct {
			Value       T
			Description string
		}
		ExceptionDetails json.RawMessage
	}
	b.call(t, "Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true}, &answer)
	empty(t, string(answer.ExceptionDetails), expression)
	return answer.Result.Value
}

// Until waits until an expression is true.
func (b *Browser) Until(t testing.TB, expression string) {
	t.Helper()
	for deadline := time.Now().Add(bound); !Eval[bool](t, b, expression); {
		if time.Now().After(deadline) {
			t.Fatalf("still not true after %v: %s", bound, expression)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Open loads a page and waits until it is there.
func (b *Browser) Open(t testing.TB, url string) {
	t.Helper()
	var answer struct{ ErrorText string }
	b.call(t, "Page.navigate", map[string]any{"url": url}, &answer)
	empty(t, answer.ErrorText, url)
	b.Until(t, fmt.Sprintf("location.href === %q && document.readyState === 'complete'", url))
}

// Resize makes the window as wide as a device's.
func (b *Browser) Resize(t testing.TB, width int, mobile bool) {
	t.Helper()
	b.call(t, "Emulation.setDeviceMetricsOverride",
		map[string]any{"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": mobile}, nil)
	b.Until(t, fmt.Sprintf("innerWidth >= %d", width)) // wider if the page does not fit
}

// Scheme turns the system's colours light or dark.
func (b *Browser) Scheme(t testing.TB, scheme string) {
	t.Helper()
	b.call(t, "Emulation.setEmulatedMedia", map[string]any{"features": []any{
		map[string]any{"name": "prefers-color-scheme", "value": scheme}}}, nil)
	b.Until(t, fmt.Sprintf("matchMedia('(prefers-color-scheme: %s)').matches", scheme))
}

// Texts returns the texts of all elements that a selector finds.
func (b *Browser) Texts(t testing.TB, selector string) string {
	t.Helper()
	return strings.Join(Eval[[]string](t, b, fmt.Sprintf("Array.from(document.querySelectorAll(%q), e => e.textContent)", selector)), "\n")
}

// Screenshot writes a picture of the page as it is to a file.
func (b *Browser) Screenshot(t testing.TB, file string) {
	t.Helper()
	var answer struct{ Data []byte }
	b.call(t, "Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true}, &answer)
	must(t, os.WriteFile(file, answer.Data, 0o644))
}

// must ends the test on an error.
func must(t testing.TB, err error, doing ...string) {
	t.Helper()
	if err != nil {
		t.Fatal(append([]string{err.Error()}, doing...))
	}
}

// empty ends the test if the browser has logged an error.
func empty(t testing.TB, complaint, of string) {
	t.Helper()
	if complaint != "" {
		t.Fatalf("%s: %s", of, complaint)
	}
}
