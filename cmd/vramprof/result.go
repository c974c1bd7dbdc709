// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/internal/output"
)

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

// oomDir returns the folder for records: --oom-dir, or else other; "" for none.
func oomDir(c *cli.Context, other string) (string, error) {
	switch dir := c.String("oom-dir"); {
	case !c.IsSet("oom-dir") && c.Bool("no-oom"):
		return "", nil
	case !c.IsSet("oom-dir"):
		return other, nil
	case c.Bool("no-oom"):
		return "", fault.Usage(errors.New("use only one of --oom-dir and --no-oom"))
	case dir == "" && other != "":
		return "", fault.Usage(errors.New("--oom-dir is empty (--no-oom writes no records)"))
	case dir == "":
		return "", fault.Usage(errors.New("--oom-dir is empty"))
	default:
		return dir, nil
	}
}

// folders returns the paths of files that are written at the end, or for a folder a path in it.
func folders(c *cli.Context) (paths []string) {
	if c.Command.Name == "serve" {
		return nil // its archive is a folder of this user
	}
	streamed := false
	for _, flag := range []string{"output", "html"} {
		if path := c.String(flag); output.IsStream(path) {
			streamed = true
		} else if path != "" {
			paths = append(paths, path)
		}
	}
	if c.Command.Name != "leaks" && len(paths) == 0 && (!streamed || c.Command.Name == "record") { // record writes records beside its result
		paths = append(paths, output.DefaultName(time.Now()))
	}
	if dir := c.String("oom-dir"); dir != "" {
		paths = append(paths, filepath.Join(dir, "record"))
	}
	return paths
}
