// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/vramprof/vramprof/internal/output"
)

// folder is an open folder that results are written into.
type folder = output.Folder

func openFolder(path string) (folder, error) { return output.OpenFolder(path) }

// besideResult returns the writer for a report printed besides a result, which may be nil: stdout
// has only one of them.
func besideResult(c *cli.Context, d output.Destination) io.Writer {
	if d != nil && d.IsStdout() {
		return c.App.ErrWriter
	}
	return c.App.Writer
}

// sayWrote prints where a result is, unless it is on stdout.
func sayWrote(c *cli.Context, d output.Destination) {
	if !d.IsStdout() {
		fmt.Fprintf(c.App.ErrWriter, "vramprof: wrote %s\n", d.Label())
	}
}
