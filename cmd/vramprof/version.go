// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/urfave/cli/v2"
)

// Set by the linker for releases: the version, the commit's hash, and its time in RFC 3339.
var (
	version = "development"
	commit  = ""
	date    = ""
)

func versionCommand() *cli.Command {
	return &cli.Command{
		Name:        "version",
		Usage:       "print the version",
		UsageText:   "vramprof version",
		Description: "Prints the version, the commit, the commit's date, the version of Go, and the platform.",
		Action: func(c *cli.Context) error {
			if err := noArguments(c); err != nil {
				return err
			}
			return printVersion(c)
		},
	}
}

func printVersion(c *cli.Context) error {
	revision, when := built()
	_, err := fmt.Fprintf(c.App.Writer, "vramprof %s (%s, %s, %s, %s/%s)\n", version, revision, when, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

// built returns the commit that the program was built from, and its date. A release has the values
// of the linker, a build in a checkout those of git: "89abcdef, modified".
func built() (revision, when string) {
	revision, when = commit, date
	modified := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				revision = cmp.Or(revision, s.Value)
			case s.Key == "vcs.time":
				when = cmp.Or(when, s.Value)
			case s.Key == "vcs.modified" && s.Value == "true" && commit == "":
				modified = ", modified"
			}
		}
	}
	return cmp.Or(revision, "unknown revision") + modified, cmp.Or(when, "unknown date")
}
