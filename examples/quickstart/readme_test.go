package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/ensemble"
)

const (
	root   = "../.."
	readme = root + "/README.md"
)

// pages returns all pages for users.
func pages(t *testing.T) []string {
	t.Helper()
	all := []string{readme, root + "/SECURITY.md", root + "/CHANGELOG.md"}
	for _, pattern := range []string{"/docs/*.md", "/docs/*/*.md"} {
		found, err := filepath.Glob(root + pattern)
		require.NoError(t, err)
		require.NotEmpty(t, found, pattern)
		all = append(all, found...)
	}
	return all
}

// goBlocks returns the Go code of a page, block by block.
func goBlocks(t *testing.T, page string) []string {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	var blocks []string
	for _, part := range strings.Split(string(text), "```go\n")[1:] {
		code, _, ended := strings.Cut(part, "\n```\n")
		require.True(t, ended, page)
		blocks = append(blocks, code+"\n")
	}
	return blocks
}

// block returns the only Go block of a page that begins with prefix.
func block(t *testing.T, page, prefix string) string {
	t.Helper()
	var found []string
	for _, b := range goBlocks(t, page) {
		if strings.HasPrefix(b, prefix) {
			found = append(found, b)
		}
	}
	require.Len(t, found, 1, "blocks of %s that begin with %q", page, prefix)
	return found[0]
}

// goTool runs the go command on files with the given content, which may import what the module in
// dir may, and returns its output.
func goTool(t *testing.T, dir string, files map[string]string, args ...string) (stdout string) {
	t.Helper()
	temp := t.TempDir()
	for name, content := range files {
		file := filepath.Join(temp, name)
		require.NoError(t, os.WriteFile(file, []byte(content), 0o644))
		args = append(args, file)
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.NoError(t, cmd.Run(), "go %s\n%s%s\n%s", strings.Join(args, " "), &out, &errs, files)
	return out.String()
}

// README's program needs an ensemble at its address.
func TestReadmesProgramRuns(t *testing.T) {
	e := ensemble.Shared(t, 1)
	program := block(t, readme, "package main")
	require.Equal(t, 1, strings.Count(program, "localhost:2181"))
	program = strings.Replace(program, "localhost:2181", e.Connect(), 1)
	assert.Equal(t, "one at a time in the whole fleet\n",
		goTool(t, ".", map[string]string{"main.go": program}, "run", "-buildvcs=false"))
}

// callsOf returns the Go code of each row of README's table "Pick one", one statement a line.
func callsOf(t *testing.T, readme string) (calls [][]string) {
	t.Helper()
	text, err := os.ReadFile(readme)
	require.NoError(t, err)
	_, table, found := strings.Cut(string(text), "## Pick one\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n## ")
	for row := range strings.Lines(table) {
		cells := strings.Split(row, "|")
		if len(cells) < 3 {
			continue
		}
		var statements []string
		for _, span := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[2], -1) {
			if code := span[1]; strings.HasSuffix(code, ")") {
				statements = append(statements, code)
			}
		}
		if len(statements) > 0 {
			calls = append(calls, statements)
		}
	}
	return calls
}

// The names are those that the text beside the table explains.
func TestEachCallOfReadmesTableCompilesAsItStands(t *testing.T) {
	var program strings.Builder
	program.WriteString(`package fragment

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zklock/admin"
	"github.com/zklock/locker/zklock/lockhttp"
	"github.com/zklock/locker/zktest"
)

var _ = lockhttp.Middleware
`)
	calls := callsOf(t, readme)
	require.Greater(t, len(calls), 10)
	for i, statements := range calls {
		fmt.Fprintf(&program, `
func call%d(t *testing.T, ctx context.Context, client *zklock.Client, path, a, b, orderID string,
	fn func(ctx context.Context) error, lead func(ctx context.Context, term *zklock.Hold) error,
	wait time.Duration, choose func(*http.Request) (lockhttp.Do, error), next http.Handler) {
`, i)
		for _, statement := range statements {
			program.WriteString("\t" + statement + "\n")
			if names, _, isSet := strings.Cut(statement, " := "); isSet {
				blanks := strings.Repeat("_, ", strings.Count(names, ","))
				fmt.Fprintf(&program, "\t%s_ = %s\n", blanks, names)
			}
		}
		program.WriteString("}\n")
	}
	goTool(t, ".", map[string]string{"calls.go": program.String()}, "vet")
}

// The testing page's tests pass, the second one also with the page's other loss in place of its
// own.
func TestTheTestingPagesTestsPass(t *testing.T) {
	const expire, expired = "\t\tserver.Expire(client.SessionStatus().ID)\n", "zklock.ErrSessionExpired"
	page := root + "/docs/how-to/testing.md"
	test := block(t, page, "func TestAnExpiredSessionEndsTheHold")
	cut := block(t, page, "server.Inject(")
	require.Equal(t, 1, strings.Count(test, expire))
	const packages = "package report_test\n\nimport (\n\t\"errors\"\n\t\"testing\"\n\t\"testing/synctest\"\n\n" +
		"\t\"github.com/zklock/locker/zklock\"\n\t\"github.com/zklock/locker/zktest\"\n"
	files := map[string]string{
		"expired_test.go": packages + ")\n\n" + test,
		"cut_test.go": packages + "\t\"github.com/zklock/locker/zktest/fault\"\n)\n\n" +
			strings.NewReplacer("AnExpiredSession", "ACutNetwork", expire, cut, expired,
				"zklock.ErrLeaseExpired").Replace(test),
		"service_test.go": "package report_test\n\n" + block(t, page, "import ("),
		"serve_test.go":   service,
	}
	out := goTool(t, ".", files, "test", "-count=1", "-v")
	assert.Contains(t, out, "--- PASS: TestAnExpiredSessionEndsTheHold")
	assert.Contains(t, out, "--- PASS: TestACutNetworkEndsTheHold")
	assert.Contains(t, out, "--- PASS: TestTheServiceStopsWhenItsLockIsLost")
}

// service is what the testing page leaves to its reader.
const service = `package report_test

import (
	"context"

	"github.com/zklock/locker/zklock"
)

func serve(ctx context.Context, servers string, working chan<- bool) error {
	client, err := zklock.Dial(ctx, servers)
	if err != nil {
		return err
	}
	defer client.Close()
	return client.Mutex("/locks/rebuild-index").Do(ctx, func(ctx context.Context) error {
		working <- true
		<-ctx.Done()
		return ctx.Err()
	})
}
`

// imports are the packages that fragments name, by the name that they have there.
var imports = map[string]string{
	"errors":     "errors",
	"fmt":        "fmt",
	"log":        "log",
	"os":         "os",
	"signal":     "os/signal",
	"strconv":    "strconv",
	"syscall":    "syscall",
	"slog":       "log/slog",
	"time":       "time",
	"zk":         "github.com/go-zookeeper/zk",
	"session":    "github.com/zklock/locker/session",
	"zktest":     "github.com/zklock/locker/zktest",
	"lockhttp":   "github.com/zklock/locker/zklock/lockhttp",
	"otelzklock": "github.com/zklock/locker/zklock/otelzklock",
}

// fragment embeds the inside of a function into a program with the declarations that fragments
// assume.
func fragment(name, code string) string {
	var b strings.Builder
	b.WriteString("package fragment\n\nimport (\n\t\"context\"\n\t\"database/sql\"\n\t\"net/http\"\n\n\t\"github.com/zklock/locker/zklock\"\n")
	for _, pkg := range slices.Sorted(maps.Keys(imports)) {
		if regexp.MustCompile(`\b` + pkg + `\.`).MatchString(code) {
			fmt.Fprintf(&b, "\t%q\n", imports[pkg])
		}
	}
	fmt.Fprintf(&b, `)

func %s(ctx context.Context, servers string, client *zklock.Client, hold *zklock.Hold, report, value []byte, db *sql.DB, mux *http.ServeMux, approve http.Handler,
	work func(context.Context) error, lead func(context.Context, *zklock.Hold) error, item func(context.Context, zklock.Token) error,
	all []struct {
		Name string
		Up   func(context.Context, *sql.DB) error
	}) (err error) {
	{
%s
	}
	return err
}
`, name, code)
	return b.String()
}

// A block is a program, a test, or the inside of a function. The insides are vetted, not run: they
// want a database, and handlers.
func TestEveryGoFragmentOfEveryPageCompiles(t *testing.T) {
	ours, otels, adapters, whole := map[string]string{}, map[string]string{}, map[string]string{}, 0
	adapted := regexp.MustCompile(
		`\b(lockfor|gocron|goose|migrations|provider|newScheduler|certmagic|cron)\b`)
	for _, page := range pages(t) {
		for i, code := range goBlocks(t, page) {
			name := fmt.Sprintf("Fragment%d_%s", i,
				strings.ReplaceAll(strings.TrimSuffix(filepath.Base(page), ".md"), "-", "_"))
			switch {
			case strings.HasPrefix(code, "package "), strings.HasSuffix(page, "/testing.md"):
				whole++
			case strings.Contains(code, "otelzklock."):
				otels[name+"_.go"] = fragment(name, code)
			case adapted.MatchString(code):
				adapters[name+"_.go"] = adapterFragment(name, code)
			default:
				ours[name+"_.go"] = fragment(name, code)
			}
		}
	}
	require.Equal(t, 6, whole, "a new program or test needs a test that runs it")
	require.NotEmpty(t, ours)
	require.NotEmpty(t, otels)
	// This test's program does not contain these packages. Having read them, it is run again when
	// they change.
	for _, dir := range []string{root + "/zklock/lockhttp", root + "/zklock/otelzklock"} {
		files, err := filepath.Glob(dir + "/*.go")
		require.NoError(t, err)
		for _, file := range files {
			_, err := os.ReadFile(file)
			require.NoError(t, err)
		}
	}
	goTool(t, ".", ours, "vet")
	goTool(t, root+"/zklock/otelzklock", otels, "vet")
	goTool(t, root+"/tests/adapters", adapters, "vet")
}

// adapterFragment is fragment for code that uses the libraries of tests/adapters.
func adapterFragment(name, code string) string {
	used := map[string]string{
		"certmagic": "github.com/caddyserver/certmagic",
		"cron":      "github.com/robfig/cron/v3",
		"gocron":    "github.com/go-co-op/gocron/v2",
		"goose":     "github.com/pressly/goose/v3",
		"lockfor":   "github.com/zklock/locker/zklock/lockfor",
		"migrate":   "github.com/golang-migrate/migrate/v4",
		"uuid":      "github.com/google/uuid",
	}
	// What the code assumes.
	var given string
	for variable, kind := range map[string][2]string{
		"provider":     {"var provider *goose.Provider", "goose"},
		"migrations":   {"var migrations *migrate.Migrate", "migrate"},
		"scheduler":    {"var scheduler gocron.Scheduler", "gocron"},
		"newScheduler": {"newScheduler := func() interface{ Start() error; Shutdown() } { return nil }", ""},
	} {
		isUsed := regexp.MustCompile(`\b` + variable + `[.(]`).MatchString(code)
		isMade := regexp.MustCompile(`\b` + variable + `\b.*:=`).MatchString(code)
		if isUsed && !isMade {
			given += kind[0] + "\n"
		}
	}
	made := regexp.MustCompile(`(?m)^(\w+)(, err)? := `).FindAllStringSubmatch(code, -1)
	for _, m := range made {
		code += "\t_ = " + m[1] + "\n"
		if m[2] != "" {
			code += "\t_ = err\n"
		}
	}
	program := fragment(name, given+code)
	for _, pkg := range slices.Sorted(maps.Keys(used)) {
		if regexp.MustCompile(`\b` + pkg + `\.`).MatchString(program) {
			program = strings.Replace(program, "import (\n",
				fmt.Sprintf("import (\n\t%q\n", used[pkg]), 1)
		}
	}
	return program
}
