//go:build linux

package main

import (
	"archive/zip"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	rootModule = "github.com/zklock/locker"
	version    = "v0.1.0"
)

// What users will do once both modules are published: go install the tool; and import the library, which must not bring
// the tool's dependencies along. The checkout is published to a directory that is a module proxy; other modules come
// from the module cache, or from where they always come from.
func TestTheToolCanBeInstalledAndTheLibraryComesWithoutIt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	proxy := filepath.Join(dir, "proxy")
	publish(t, proxy, rootModule, filepath.Join("..", ".."))
	publish(t, proxy, rootModule+"/cmd/zklock", ".")
	env := append(os.Environ(), "GOWORK=off", "GOFLAGS=-modcacherw -mod=mod", "GOSUMDB=off", "GONOPROXY=none", "GOPRIVATE=", "GO111MODULE=",
		"GOMODCACHE="+filepath.Join(dir, "cache"), "GOBIN="+filepath.Join(dir, "bin"),
		"GOPROXY=file://"+proxy+",file://"+goEnv(t, "GOMODCACHE")+"/cache/download,"+goEnv(t, "GOPROXY"))
	run := func(in string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Dir, cmd.Env = in, env
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%q: %s", args, out)
		return string(out)
	}
	run(dir, "go", "install", rootModule+"/cmd/zklock@"+version)
	require.Contains(t, run(dir, filepath.Join(dir, "bin", "zklock"), "version"), "zklock "+version+", locker "+version)
	require.Contains(t, run(dir, filepath.Join(dir, "bin", "zklock"), "help", "run"), "PATH -- COMMAND")

	importer := filepath.Join(dir, "importer")
	require.NoError(t, os.MkdirAll(importer, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(importer, "go.mod"), []byte("module example.com/importer\n\ngo 1.26.0\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(importer, "main.go"),
		[]byte("package main\n\nimport \""+rootModule+"/zklock\"\n\nfunc main() { _ = zklock.KeyPath }\n"), 0o644))
	run(importer, "go", "get", rootModule+"/zklock@"+version)
	modules := run(importer, "go", "list", "-m", "all")
	require.Contains(t, modules, rootModule+" "+version)
	require.Contains(t, modules, "github.com/go-zookeeper/zk ")
	for _, tool := range []string{"cobra", "pflag", "x/term", "go-internal", "creack", rootModule + "/cmd"} {
		require.NotContains(t, modules, tool)
	}
}

// TestGoModHasNoReplace: go install refuses a module with one.
func TestGoModHasNoReplace(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("go.mod")
	require.NoError(t, err)
	require.NotContains(t, string(text), "replace")
	require.Contains(t, string(text), rootModule+" "+version)
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}

// publish writes a module into a proxy's directory, as the go command's proxy protocol wants it.
func publish(t *testing.T, proxy, module, root string) {
	t.Helper()
	dir := filepath.Join(proxy, filepath.FromSlash(module), "@v")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	gomod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	for name, text := range map[string]string{
		"list":            version + "\n",
		version + ".info": fmt.Sprintf(`{"Version":%q,"Time":"2026-01-01T00:00:00Z"}`, version),
		version + ".mod":  string(gomod),
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	file, err := os.Create(filepath.Join(dir, version+".zip"))
	require.NoError(t, err)
	w := zip.NewWriter(file)
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			_, err := os.Stat(filepath.Join(path, "go.mod"))
			if rel != "." && (d.Name() == ".git" || d.Name() == "vendor" || err == nil) { // a module of its own is not part of this one
				return fs.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() || strings.HasSuffix(rel, ".test") {
			return nil
		}
		text, err := os.ReadFile(path)
		if os.IsNotExist(err) { // a temporary file of somebody else's
			return nil
		}
		if err != nil {
			return err
		}
		f, err := w.Create(module + "@" + version + "/" + filepath.ToSlash(rel))
		if err == nil {
			_, err = f.Write(text)
		}
		return err
	})
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.NoError(t, file.Close())
}
