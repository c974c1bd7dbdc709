// SPDX-License-Identifier: Apache-2.0

package web

import (
	"io"
	"net/http"
)

const healthPrefix = "/-/"

// routeHealth serves the probes of Kubernetes: healthy as soon as there is an answer, ready while
// the session is traced.
func (s *Server) routeHealth(mux *http.ServeMux) {
	mux.HandleFunc("GET "+healthPrefix+"healthy", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "vramprof is healthy.\n")
	})
	mux.HandleFunc("GET "+healthPrefix+"ready", func(w http.ResponseWriter, _ *http.Request) {
		if !s.config.Ready() {
			http.Error(w, "vramprof is not tracing.", http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "vramprof is ready.\n")
	})
}
