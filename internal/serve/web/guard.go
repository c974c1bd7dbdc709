// SPDX-License-Identifier: Apache-2.0

package web

import (
	"net"
	"net/http"
	"slices"
	"strings"
)

// strictPolicy is the Content-Security-Policy of what is no page: a browser that shows it runs and
// loads nothing.
const strictPolicy = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

// maxRequests is how many requests are answered at a time, over all connections. It is less than
// maxConnections: then there is always one whose request is still to come, and which may ask for
// health.
const maxRequests = 192

// guard refuses what no client of ours sends, and sets the headers of all answers. A page sets a
// policy of its own.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", strictPolicy)
		h.Set("X-Frame-Options", "DENY")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if code, text := s.refusal(r); code != 0 {
			if code == http.StatusMethodNotAllowed {
				h.Set("Allow", "GET, HEAD")
			}
			h.Set("Connection", "close") // what follows of the request is not read
			http.Error(w, text, code)
			return
		}
		if monitors(r.URL.Path) {
			next.ServeHTTP(w, r)
			return
		}
		p := s.peerOf(r)
		if s.running.enter(r.Context(), p, 0) != nil {
			h.Set("Connection", "close") // for who has not had one
			busy(w)
			return
		}
		defer s.running.leave(p)
		next.ServeHTTP(w, r)
	})
}

// monitors reports whether a path is one of the probes of Kubernetes and of Prometheus, which must
// be answered however many other requests there are.
func monitors(path string) bool { return path == metricsPath || strings.HasPrefix(path, healthPrefix) }

// refusal returns why a request is not answered; code 0: it is.
func (s *Server) refusal(r *http.Request) (code int, text string) {
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		return http.StatusMethodNotAllowed, "vramprof answers only GET and HEAD."
	case r.ContentLength != 0:
		return http.StatusRequestEntityTooLarge, "vramprof takes no request bodies."
	case crossSite(r):
		return http.StatusForbidden, "vramprof answers no requests that pages of other sites make."
	case !s.ownHost(r):
		return http.StatusForbidden, "vramprof does not answer to this host name, as it may be another site's " +
			"(use an IP address, localhost or the machine's name, or start vramprof serve with --web.external-host NAME)."
	}
	return 0, ""
}

// crossSite reports whether a page of another site, or of another port of this host, makes the
// request. A link that opens a page of its own is no such request, a frame is one.
func crossSite(r *http.Request) bool {
	switch h := r.Header; h.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return false
	default:
		return h.Get("Sec-Fetch-Mode") != "navigate" || h.Get("Sec-Fetch-Dest") != "document"
	}
}

// ownHost reports whether the Host header can be this server's. In a browser that can connect, a
// name of another site may lead here (DNS rebinding), whatever the address is.
func (s *Server) ownHost(r *http.Request) bool {
	name := hostOf(r.Host)
	if name == "" || net.ParseIP(name) != nil || name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return true
	}
	return slices.Contains(s.names, name)
}
