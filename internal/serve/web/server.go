// SPDX-License-Identifier: Apache-2.0

package web

import (
	"net/http"
	"sync"

	"github.com/vramprof/vramprof/report/watch"
)

// Server answers the requests of all listeners.
type Server struct {
	config  Config
	names   []string // of this machine
	answers answers
	ooms    oomList

	page     *page
	verdicts *watch.Watcher

	running, waiting, scraping, monitoring *gate

	metrics func() http.Handler // for all listeners

	end    sync.Once
	ending chan struct{} // closed when a listener's server shuts down

	*clients
	*moments
	*limits
}

// Relieve refuses answers for a while and drops those that are kept, because memory is scarce. It
// reports whether that may have freed any, or will when answers that are being composed end.
func (s *Server) Relieve() bool {
	held := s.scarcity.begin()
	held = s.moments.drop() || held
	return s.answers.drop() || held
}
