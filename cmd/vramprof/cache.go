// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/unwindcache"
)

func cacheFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "cache", Value: unwindcache.Default, Usage: "keep unwind tables of libraries in `DIR` for later sessions, which then start faster"},
		&cli.BoolFlag{Name: "no-cache", Usage: "keep no unwind tables, and use none that are kept"},
	}
}

// openCache opens the folder of --cache, or the one that systemd has made for the service; nil: there
// is none. The default folder may be missing or read-only, as in a container. It is an error if the
// user named a folder that cannot be used.
func (s *session) openCache(c *cli.Context) error {
	if c.Bool("no-cache") {
		if c.IsSet("cache") {
			return fault.Usage(errors.New("use only one of --cache and --no-cache"))
		}
		return nil
	}
	path := c.String("cache")
	if own := os.Getenv("CACHE_DIRECTORY"); own != "" && !c.IsSet("cache") {
		path = own
	}
	cache, err := unwindcache.Open(path)
	switch {
	case err == nil:
		s.config.Tables = cache
	case c.IsSet("cache"):
		return fault.New(fault.Failed, err)
	case errors.Is(err, untrusted.ErrUnsafe) || c.Bool("verbose"):
		fmt.Fprintf(s.stderr, "vramprof: unwind tables are not kept: %s\n", untrusted.Clean(err.Error()))
	}
	return nil
}
