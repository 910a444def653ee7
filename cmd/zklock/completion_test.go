//go:build linux

package main

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// offersFiles reports whether a shell offers local files for the last of words.
func offersFiles(t *testing.T, words ...string) bool {
	t.Helper()
	var out bytes.Buffer
	a := &app{in: strings.NewReader(""), out: &out, err: io.Discard}
	a.words = append([]string{cobra.ShellCompNoDescRequestCmd}, words...)
	root := a.root()
	root.SetArgs(a.words)
	require.NoError(t, root.Execute(), words)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	directive := lines[len(lines)-1]
	require.Contains(t, []string{":0", ":4"}, directive, words)
	return directive == ":0"
}

func TestCompletionOffersFilesOnlyWhereFilesAreMeant(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, cmd := range (&app{out: io.Discard, err: io.Discard}).root().Commands() {
		name := cmd.Name()
		require.False(t, offersFiles(t, name, ""), name)
		require.False(t, offersFiles(t, name, "/locks/a", ""), name)
		cmd.InheritedFlags() // merges them
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.NoOptDefVal != "" || f.Name == "help" {
				return // has no value
			}
			file := slices.Contains([]string{"auth-file", "tls-ca", "tls-cert", "tls-key"}, f.Name)
			require.Equal(t, file, offersFiles(t, name, "--"+f.Name, ""), "%s --%s", name, f.Name)
			seen++
		})
	}
	require.Greater(t, seen, 100)
	for _, name := range []string{"run", "elect"} {
		require.True(t, offersFiles(t, name, "/locks/a", "--", ""), name)
		require.True(t, offersFiles(t, name, "/locks/a", "--", "./rebuild.sh", "d"), name)
		require.False(t, offersFiles(t, name, "/locks/a", "--"), name)
	}
}
