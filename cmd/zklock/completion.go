package main

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func (a *app) completionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "completion bash|zsh|fish",
		GroupID: groupRest,
		Short:   "Write a completion script for a shell",
		Example: `  source <(zklock completion bash)
  zklock completion zsh > "${fpath[1]}/_zklock"
  zklock completion fish > ~/.config/fish/completions/zklock.fish`,
		Args:                  cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs:             []string{"bash", "zsh", "fish"},
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(a.out, true)
			case "zsh":
				return root.GenZshCompletion(a.out)
			default:
				return root.GenFishCompletion(a.out, true)
			}
		},
	}
}

// noFiles completes a flag with these values.
func noFiles(cmd *cobra.Command, flag string, values ...string) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // no such flag: a programmer's error
	}
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		GroupID: groupRest,
		Short:   "Say which version this is",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(a.out, versionText())
			return err
		},
	}
}

// versionText is that of this program, of the library in it and of Go.
func versionText() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "zklock (unknown version)"
	}
	library := ""
	for _, m := range info.Deps {
		if m.Path == "github.com/zklock/locker" {
			library = ", locker " + m.Version
		}
	}
	return fmt.Sprintf("zklock %s%s, %s", info.Main.Version, library, info.GoVersion)
}
