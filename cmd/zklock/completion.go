package main

import (
	"slices"

	"github.com/spf13/cobra"
)

// fileFlags are the flags whose values name local files.
var fileFlags = []string{"auth-file", "tls-ca", "tls-cert", "tls-key"}

// completeFiles makes a shell offer local files only where files are meant. Without it, cobra makes
// the shell offer them for znodes' paths and for the values of all flags.
func completeFiles(root *cobra.Command) {
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	for _, name := range fileFlags {
		// It fails for a flag that does not exist or was registered before.
		if err := root.RegisterFlagCompletionFunc(name, files); err != nil {
			panic(err)
		}
	}
}

// files leaves a word to the shell, which completes it as a file.
func files(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveDefault
}

// completeCommand completes PATH -- COMMAND [ARG…], with files only behind the --. It
// searches for the -- in the words of the command line, since cobra adds its own -- before it asks.
func (a *app) completeCommand(
	*cobra.Command, []string, string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	if slices.Contains(a.words[:max(len(a.words)-1, 0)], "--") {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}
