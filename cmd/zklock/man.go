package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func (a *app) manCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "man",
		GroupID: groupRest,
		Short:   "Write the manual page",
		Long:    "Write zklock(1), the manual page, from the texts of --help.",
		Example: `  zklock man > /usr/local/share/man/man1/zklock.1
  zklock man | man -l -`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m := man{out: a.out}
			m.page(cmd.Root())
			return m.err
		},
	}
}

// man writes a manual page in the macros of man(7).
type man struct {
	out io.Writer
	err error
}

func (m *man) line(format string, args ...any) {
	if m.err == nil {
		_, m.err = fmt.Fprintf(m.out, format+"\n", args...)
	}
}

func (m *man) page(root *cobra.Command) {
	m.line(`.TH ZKLOCK 1 "" "%s" "User Commands"`, roff(versionText()))
	m.line(".SH NAME\nzklock \\- %s", roff(root.Short))
	m.line(".SH SYNOPSIS\n.B zklock\n.I command\n[flags] [arguments]")
	m.line(".SH DESCRIPTION")
	m.text(root.Long)
	m.line(".SH EXAMPLES")
	m.block(root.Example)
	m.line(".SH OPTIONS OF ALL COMMANDS")
	m.flags(root.PersistentFlags())
	m.line(".SH COMMANDS")
	for _, cmd := range root.Commands() {
		if cmd.Runnable() && !cmd.Hidden && cmd.Name() != "help" {
			m.command(cmd)
		}
	}
	for _, cmd := range root.Commands() {
		if !cmd.Runnable() && cmd.Long != "" {
			m.line(".SH %s", roff(strings.ToUpper(strings.ReplaceAll(cmd.Name(), "-", " "))))
			m.text(cmd.Long)
		}
	}
	m.line(".SH SEE ALSO\n.BR flock (1),\n.BR systemd.service (5)")
}

func (m *man) command(cmd *cobra.Command) {
	m.line(".SS %s", roff("zklock "+cmd.Use))
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	text, _, _ = strings.Cut(text, exitTable) // printed once
	m.text(text)
	m.flags(cmd.LocalNonPersistentFlags())
	if cmd.Example != "" {
		m.line(".PP\nExamples:")
		m.block(cmd.Example)
	}
}

func (m *man) flags(flags *pflag.FlagSet) {
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		name, usage := pflag.UnquoteUsage(f)
		head := "--" + f.Name
		if f.Shorthand != "" {
			head = "-" + f.Shorthand + ", " + head
		}
		m.line(".TP\n.BI %s", roff(quoted(head)+" "+quoted(" "+name)))
		m.line("%s", roff(strings.ReplaceAll(usage, "\n", " ")))
	})
}

func quoted(s string) string { return `"` + s + `"` }

// text writes paragraphs; one with indented lines is a table, and stays as it is.
func (m *man) text(text string) {
	for part := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		if strings.Contains("\n"+part, "\n  ") {
			m.block(part)
			continue
		}
		m.line(".PP\n%s", roff(part))
	}
}

// block writes lines unchanged.
func (m *man) block(text string) { m.line(".PP\n.nf\n%s\n.fi", roff(strings.TrimRight(text, "\n"))) }

// roff escapes characters that have a meaning in roff.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
