package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/zklock/locker/internal/doctor"
	"github.com/zklock/locker/internal/unsealed"
)

func (a *app) doctorCommand() *cobra.Command {
	var conf doctor.Config
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "doctor [flags] [PATH]",
		GroupID: groupLook,
		Short:   "Examine the ensemble: releases, limits, permissions, clocks",
		Long: `Ask each server of the ensemble for its release, limits and permissions, and report what of that endangers locks:
  - a release that can lose acknowledged writes;
  - a tickTime that is not the one that the client assumes (--tick);
  - session limits that differ between servers;
  - a jute.maxbuffer that is too small;
  - a session with more ephemeral znodes than servers can delete at once;
  - permissions that are missing at PATH (default /);
  - clocks that differ.

Version, tick, clock and ephemeral znodes come from the four-letter words srvr, conf, cons and dump, where
4lw.commands.whitelist allows them. Version and tick may come from the port that --admin-port names instead. The limits are
measured by what the servers grant, the permissions by operations without an effect. It leaves nothing behind.

zklock help exit-codes says what it ends with.`,
		Example: `  zklock doctor /locks
  zklock doctor --admin-port 8080 --json /locks | jq .findings`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 {
				conf.Path = args[0]
			}
			return a.doctor(conf, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the report as JSON; times are in seconds")
	cmd.Flags().IntVar(&conf.AdminPort, "admin-port", 0,
		"the servers' HTTP `port` for administrators (admin.serverPort)")
	return cmd
}

// doctor examines the ensemble and prints the report. It returns the exit code as an error.
func (a *app) doctor(conf doctor.Config, asJSON bool) error {
	opts, err := a.conn.options(a.warnOfFiles)
	if err != nil {
		return err
	}
	if conf.Session, err = unsealed.SessionConfig(opts); err != nil {
		return fmt.Errorf("doctor: %w", err)
	}
	conf.Patience = a.conn.patience
	var r *doctor.Report
	err = a.interruptible(func(ctx context.Context) error {
		return a.telling(ctx, "examining the servers", func() (err error) {
			r, err = doctor.Examine(ctx, a.conn.zk, conf)
			return err
		})
	})
	if err != nil {
		return err
	}
	if err := a.printReport(r, asJSON); err != nil {
		return err
	}
	return reportCode(r)
}

func (a *app) printReport(r *doctor.Report, asJSON bool) error {
	if asJSON {
		out := json.NewEncoder(a.out)
		out.SetIndent("", "  ")
		return out.Encode(r)
	}
	_, err := fmt.Fprint(a.out, reportText(r))
	return err
}

// reportCode returns the exit code for a report as an error without a message, since the findings
// have been printed. It returns nil for 0.
func reportCode(r *doctor.Report) error {
	serves := func(v doctor.Server) bool { return v.Error == "" }
	switch {
	case !slices.ContainsFunc(r.Servers, serves):
		return &exitError{exitUnreachable, nil}
	case len(r.Findings) > 0 && r.Findings[0].Severity == doctor.Danger:
		return &exitError{exitFailed, nil}
	}
	return nil
}

// reportText returns the report for people: one line per server, the path, and the findings.
func reportText(r *doctor.Report) string {
	var b strings.Builder
	for _, v := range r.Servers {
		fmt.Fprintf(&b, "%-21s %s\n", v.Addr, serverText(&v))
	}
	if a := r.Access; a.At != "" {
		fmt.Fprintf(&b, "%-21s READ %s, CREATE %s, DELETE %s, WRITE %s, ADMIN %s\n",
			a.At, a.Read, a.Create, a.Delete, a.Write, a.Admin)
	}
	if r.Offset != nil {
		fmt.Fprintf(&b, "%-21s %s\n", "dates of znodes", clockText(r.Offset))
	}
	for _, f := range r.Findings {
		where := ""
		if f.Server != "" {
			where = f.Server + ": "
		}
		fmt.Fprintf(&b, "%-8s %s%s\n", f.Severity, where, f.Text)
	}
	return b.String()
}

// serverText says what one server has told, or why it serves nothing.
func serverText(v *doctor.Server) string {
	if v.Error != "" {
		return v.Error
	}
	return fmt.Sprintf("%s %s, tick %s, sessions %v to %v, read %v, write %v, clock %s",
		dash(v.Version), dash(v.Mode), known(v.Tick), v.MinTimeout, v.MaxTimeout,
		v.Read.Round(10*time.Microsecond), v.Write.Round(10*time.Microsecond),
		clockText(v.Offset))
}

// known returns the text of d, or "?" for 0, which stands for unknown.
func known(d time.Duration) string {
	if d == 0 {
		return "?"
	}
	return d.String()
}

// clockText says how far a clock is ahead of this machine's.
func clockText(o *doctor.Offset) string {
	if o == nil {
		return "?"
	}
	return fmt.Sprintf("%+.3f s ±%.3f", o.Ahead.Seconds(), o.Error.Seconds())
}
