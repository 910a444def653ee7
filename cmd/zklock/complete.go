package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/zklock/locker/recipe"
)

// completePatience is how long a shell's TAB may wait for the ensemble.
const completePatience = 2 * time.Second

// completePath completes a PATH, the first word of a command, with the ensemble's znodes. The words after it are files.
func (a *app) completePath(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	const none = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	if a.conn.environment(cmd.Flags()) != nil {
		return nil, none
	}
	a.conn.patience = min(a.conn.patience, completePatience)
	a.verbose = false
	ctx, cancel := context.WithTimeout(cmd.Context(), completePatience)
	defer cancel()
	c, err := a.dial(ctx)
	if err != nil {
		return nil, none // an error must not interrupt the command line
	}
	defer c.Close()
	s, err := c.Session(ctx)
	if err != nil {
		return nil, none
	}
	dir := begun[:strings.LastIndexByte(begun, '/')+1]
	names, _, err := s.List(ctx, "/"+strings.Trim(dir, "/"))
	if err != nil {
		return nil, none
	}
	var found []cobra.Completion
	for _, name := range names {
		full := join("/"+strings.Trim(dir, "/"), name)
		_, contender := recipe.Parse(name)
		if contender || full == "/zookeeper" || clean(name) != name || strings.ContainsAny(name, " \t:") || !strings.HasPrefix(full, begun) {
			continue // a name that a shell would not read as one word must be typed
		}
		found = append(found, full)
	}
	return found, none
}

// completePaths adds the completion to every command that begins with a PATH.
func (a *app) completePaths(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		if strings.Contains(cmd.Use, " PATH") {
			cmd.ValidArgsFunction = a.completePath
		}
	}
}
