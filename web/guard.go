// SPDX-License-Identifier: Apache-2.0

package web

import (
	"net"
	"net/http"
	"os"
	"strings"
)

// strictPolicy is the Content-Security-Policy of what is no page: a browser that shows it runs and
// loads nothing.
const strictPolicy = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

// maxRequests is how many requests are answered at a time, over all connections.
const maxRequests = 256

// guard refuses what no client of ours sends, and sets the headers of all answers. A page sets a
// policy of its own.
func (s *Server) guard(next http.Handler) http.Handler {
	running := make(chan struct{}, maxRequests)
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
		select {
		case running <- struct{}{}:
			defer func() { <-running }()
		default:
			busy(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

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
		return http.StatusForbidden, "vramprof does not answer to this host name on a loopback address, as it may be another site's " +
			"(use localhost or an IP address, or start vramprof serve with --web.external-host NAME)."
	}
	return 0, ""
}

// crossSite reports whether a page of another site makes the request. Links are no such requests.
func crossSite(r *http.Request) bool {
	return r.Header.Get("Sec-Fetch-Site") == "cross-site" && r.Header.Get("Sec-Fetch-Mode") != "navigate"
}

// ownHost reports whether the Host header can be this server's. On a loopback address only browsers
// of this machine can connect, for which a site's own name may lead here (DNS rebinding). Elsewhere
// any name may be the machine's.
func (s *Server) ownHost(r *http.Request) bool {
	if address, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); !ok || !address.IP.IsLoopback() {
		return true
	}
	name := hostOf(r.Host)
	if name == "" || net.ParseIP(name) != nil || name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return true
	}
	for _, own := range s.names {
		if strings.EqualFold(name, own) {
			return true
		}
	}
	return false
}

// hostOf returns the name in a Host header: "[::1%25lo]:9836" is "::1", "LOCALHOST." is "localhost".
func hostOf(header string) string {
	name := header
	if host, _, err := net.SplitHostPort(header); err == nil {
		name = host
	}
	name = strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
	name, _, _ = strings.Cut(name, "%")
	return strings.ToLower(strings.TrimSuffix(name, "."))
}

// ownNames returns the names that the machine answers to: its host name, whole and up to the first
// dot, and the given ones, which may have a port.
func ownNames(external []string) (names []string) {
	if host, err := os.Hostname(); err == nil && host != "" {
		short, _, _ := strings.Cut(host, ".")
		names = append(names, host, short)
	}
	for _, name := range external {
		names = append(names, hostOf(name))
	}
	return names
}

// busy answers that there are too many requests.
func busy(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	http.Error(w, "vramprof answers too many requests now.", http.StatusServiceUnavailable)
}
