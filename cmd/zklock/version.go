package main

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
)

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

// versionText returns the versions of this program, of the library in it and of Go.
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
