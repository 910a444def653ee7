//go:build linux

package release_test

import (
	"archive/zip"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	checkout   = "../.."
	rootModule = "github.com/zklock/locker"
	version    = "v0.99.0"
)

// The test does what users do after a release: get a module, and install the tool. The release is
// made in a copy of the checkout, and published to a directory that is a module proxy; other
// modules come from the module cache, or from where they always come from.
func TestEveryModuleOfAReleaseCanBeUsedFromOutside(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	repo, proxy := filepath.Join(dir, "repo"), filepath.Join(dir, "proxy")
	copyCheckout(t, repo)
	run(t, repo, nil, "scripts/release.sh", version)

	modules := modulesOf(t, repo)
	require.Contains(t, modules, "cmd/zklock")
	for _, at := range modules {
		publish(t, repo, proxy, at)
	}
	env := []string{"GOWORK=off", "GOFLAGS=-modcacherw -mod=mod", "GOSUMDB=off", "GONOPROXY=",
		"GOPRIVATE=", "GO111MODULE=",
		"GOMODCACHE=" + filepath.Join(dir, "cache"), "GOBIN=" + filepath.Join(dir, "bin"),
		"GOPROXY=file://" + proxy + ",file://" + goEnv(t, "GOMODCACHE") + "/cache/download," +
			goEnv(t, "GOPROXY")}

	run(t, dir, env, "go", "install", rootModule+"/cmd/zklock@"+version)
	zklock := filepath.Join(dir, "bin", "zklock")
	require.Contains(t, run(t, dir, env, zklock, "version"), "zklock "+version+", locker "+version)
	require.Contains(t, run(t, dir, env, zklock, "help", "run"), "PATH -- COMMAND")

	for _, at := range modules {
		// a module that no program can import has its requirements resolved
		run(t, importer(t, dir), env, "go", "get", path.Join(rootModule, at)+"@"+version)
	}

	plain := importer(t, dir)
	write(t, filepath.Join(plain, "main.go"),
		"package main\n\nimport \""+rootModule+"/zklock\"\n\nfunc main() { _ = zklock.KeyPath }\n")
	run(t, plain, env, "go", "get", rootModule+"/zklock@"+version)
	run(t, plain, env, "go", "vet", ".")
	all := run(t, plain, env, "go", "list", "-m", "all")
	require.Contains(t, all, rootModule+" "+version)
	require.Contains(t, all, "github.com/go-zookeeper/zk ")
	for _, foreign := range []string{"cobra", "pflag", "x/term", "opentelemetry", "gokrb5", "pgx",
		"etcd", rootModule + "/"} {
		require.NotContains(t, all, foreign, "the library brings what only a nested module needs")
	}

	metrics := importer(t, dir)
	write(t, filepath.Join(metrics, "main.go"),
		"package main\n\nimport _ \""+rootModule+"/zklock/otelzklock\"\n\nfunc main() {}\n")
	run(t, metrics, env, "go", "get", rootModule+"/zklock/otelzklock@"+version)
	run(t, metrics, env, "go", "vet", ".")
	require.Contains(t, run(t, metrics, env, "go", "list", "-m", rootModule), version)
}

func TestAReleaseIsACommitWithChangelogRequirementsAndTags(t *testing.T) {
	t.Parallel()
	repo := filepath.Join(t.TempDir(), "repo")
	copyCheckout(t, repo)
	run(t, repo, nil, "scripts/release.sh", version)
	require.Empty(t, run(t, repo, nil, "git", "status", "--porcelain"))
	tags := run(t, repo, nil, "git", "tag", "--points-at", "HEAD")
	message := run(t, repo, nil, "git", "show", "--no-patch", "--format=%B")
	for _, at := range modulesOf(t, repo) {
		require.Contains(t, tags, tagOf(at)+"\n")
		require.Contains(t, message, "\n"+tagOf(at)+"\n")
		if at == "." {
			continue
		}
		text := read(t, filepath.Join(repo, at, "go.mod"))
		required := strings.Count(text, rootModule+" v") // zklockvet needs none of it
		require.Equal(t, required, strings.Count(text, rootModule+" "+version+"\n"), at)
		require.NotContains(t, text, "\nreplace",
			"go install refuses a module with a replace directive, and modules that require it ignore it")
	}
	require.Contains(t, read(t, filepath.Join(repo, "go.work")),
		"replace "+rootModule+" "+version+" => .\n")
	require.Contains(t, read(t, filepath.Join(repo, "README.md")),
		"go get "+rootModule+"/zklock@"+version+"\n")
	require.Contains(t, read(t, filepath.Join(repo, "docs/start.md")),
		"go get "+rootModule+"/zklock@"+version+"\n")
	require.Contains(t, read(t, filepath.Join(repo, "docs/operate/monitoring.md")),
		"`go get "+rootModule+"/zklock/otelzklock@"+version+"`")
	require.Contains(t, read(t, filepath.Join(repo, "docs/operate/command-line.md")),
		"go install "+rootModule+"/cmd/zklock@"+version+"\n")
	log := read(t, filepath.Join(repo, "CHANGELOG.md"))
	require.Less(t, strings.Index(log, "## [Unreleased]\n"),
		strings.Index(log, "## ["+version[1:]+"] - 2"))
}

func TestAReleaseThatCanNotBeMadeChangesNothing(t *testing.T) {
	t.Parallel()
	repo := filepath.Join(t.TempDir(), "repo")
	copyCheckout(t, repo)
	before := run(t, repo, nil, "git", "rev-parse", "HEAD")
	refused := func(says string, args ...string) {
		t.Helper()
		out, err := command(t, repo, nil,
			append([]string{"scripts/release.sh"}, args...)...).CombinedOutput()
		require.Error(t, err)
		require.Contains(t, string(out), says)
		require.Equal(t, before, run(t, repo, nil, "git", "rev-parse", "HEAD"))
	}
	refused("not such as v0.1.0")
	refused("not such as v0.1.0", "0.1.0")
	write(t, filepath.Join(repo, "new"), "")
	refused("not committed", version)
	require.NoError(t, os.Remove(filepath.Join(repo, "new")))
	run(t, repo, nil, "git", "tag", version)
	refused("a tag "+version+" already", version)
	run(t, repo, nil, "git", "tag", "-d", version)
	write(t, filepath.Join(repo, "CHANGELOG.md"),
		"# Changelog\n\n## [Unreleased]\n\n## [0.0.1]\n\n- That.\n")
	run(t, repo, nil, "git", "commit", "-qam", "nothing to tell")
	before = run(t, repo, nil, "git", "rev-parse", "HEAD")
	refused("nothing stands under [Unreleased]", version)
}

// copyCheckout makes a repository of its own of the checkout's files, as they are now, with
// something to tell in the changelog: nothing is there right after a release.
func copyCheckout(t *testing.T, repo string) {
	t.Helper()
	names := run(t, checkout, nil, "git", "ls-files", "-z", "--cached", "--others",
		"--exclude-standard")
	for name := range strings.SplitSeq(strings.TrimRight(names, "\x00"), "\x00") {
		from, to := filepath.Join(checkout, name), filepath.Join(repo, name)
		info, err := os.Stat(from)
		if os.IsNotExist(err) { // deleted, and not yet committed
			continue
		}
		require.NoError(t, err)
		text, err := os.ReadFile(from)
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o755))
		require.NoError(t, os.WriteFile(to, text, info.Mode().Perm()))
	}
	const unreleased = "## [Unreleased]\n"
	log := filepath.Join(repo, "CHANGELOG.md")
	write(t, log, strings.Replace(read(t, log), unreleased, unreleased+"\n- Something new.\n", 1))
	run(t, repo, nil, "git", "init", "-q")
	run(t, repo, nil, "git", "config", "user.name", "release test")
	run(t, repo, nil, "git", "config", "user.email", "release@example.com")
	run(t, repo, nil, "git", "add", "--all")
	run(t, repo, nil, "git", "commit", "-qm", "the checkout")
}

// modulesOf returns the directories of a repository's modules, "." for the root.
func modulesOf(t *testing.T, repo string) []string {
	t.Helper()
	var all []string
	for name := range strings.FieldsSeq(run(t, repo, nil, "git", "ls-files", "go.mod",
		"*/go.mod")) {
		all = append(all, path.Dir(name))
	}
	return all
}

func tagOf(module string) string {
	return strings.TrimPrefix(module+"/"+version, "./")
}

// publish writes a tagged module into a proxy's directory, as the go command's proxy protocol wants
// it.
func publish(t *testing.T, repo, proxy, module string) {
	t.Helper()
	name := path.Join(rootModule, module)
	dir := filepath.Join(proxy, filepath.FromSlash(name), "@v")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	show := func(file string) string {
		return run(t, repo, nil, "git", "show", tagOf(module)+":"+file)
	}
	write(t, filepath.Join(dir, "list"), version+"\n")
	write(t, filepath.Join(dir, version+".info"),
		fmt.Sprintf(`{"Version":%q,"Time":"2026-01-01T00:00:00Z"}`, version))
	write(t, filepath.Join(dir, version+".mod"), show(path.Join(module, "go.mod")))

	var nested []string
	for _, other := range modulesOf(t, repo) {
		if other != module && (module == "." || strings.HasPrefix(other, module+"/")) {
			nested = append(nested, other+"/")
		}
	}
	file, err := os.Create(filepath.Join(dir, version+".zip"))
	require.NoError(t, err)
	w := zip.NewWriter(file)
	for at := range strings.FieldsSeq(run(t, repo, nil, "git", "ls-tree", "-r", "--name-only",
		tagOf(module), "--", module)) {
		if in(nested, at) {
			continue
		}
		rel, err := filepath.Rel(module, at)
		require.NoError(t, err)
		f, err := w.Create(name + "@" + version + "/" + filepath.ToSlash(rel))
		require.NoError(t, err)
		_, err = f.Write([]byte(show(at)))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.NoError(t, file.Close())
}

// in reports whether a file lies in one of the directories.
func in(dirs []string, file string) bool {
	for _, dir := range dirs {
		if strings.HasPrefix(file, dir) {
			return true
		}
	}
	return false
}

// importer makes an empty module of a user.
func importer(t *testing.T, dir string) string {
	t.Helper()
	at, err := os.MkdirTemp(dir, "importer")
	require.NoError(t, err)
	write(t, filepath.Join(at, "go.mod"), "module example.com/importer\n\ngo 1.26.0\n")
	return at
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	return strings.TrimSpace(run(t, checkout, nil, "go", "env", name))
}

func command(t *testing.T, in string, env []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir, cmd.Env = in, append(os.Environ(), env...)
	return cmd
}

// run returns what a command that succeeds writes to its standard output.
func run(t *testing.T, in string, env []string, args ...string) string {
	t.Helper()
	var says strings.Builder
	cmd := command(t, in, env, args...)
	cmd.Stderr = &says
	out, err := cmd.Output()
	require.NoError(t, err, "%q: %s%s", args, out, &says)
	return string(out)
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(text)
}

func write(t *testing.T, file, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
}
