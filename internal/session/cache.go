// SPDX-License-Identifier: Apache-2.0

package session

import (
	"errors"
	"fmt"
	"os"

	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/unwindcache"
)

// openCache opens the cache's folder, or the one that systemd has made for the service. The default
// folder may be missing or read-only, as in a container.
func (s *Session) openCache() error {
	if s.Cache.Off {
		return nil
	}
	path := s.Cache.Dir
	if own := os.Getenv("CACHE_DIRECTORY"); own != "" && !s.Cache.Named {
		path = own
	}
	cache, err := unwindcache.Open(path)
	switch {
	case err == nil:
		s.Trace.Tables = cache
	case s.Cache.Named:
		return fault.New(fault.Failed, err)
	case errors.Is(err, untrusted.ErrUnsafe) || s.Verbose:
		fmt.Fprintf(s.Stderr, "vramprof: unwind tables are not kept: %s\n", untrusted.Clean(err.Error()))
	}
	return nil
}
