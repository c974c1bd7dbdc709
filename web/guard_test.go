// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

func withLocal(r *http.Request, ip string) context.Context {
	return context.WithValue(r.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.ParseIP(ip), Port: 9836})
}

func TestOnlyGetAndHead(t *testing.T) {
	s := newServer(torchSession())
	for method, want := range map[string]int{
		"GET": 200, "HEAD": 200, "POST": 405, "PUT": 405, "DELETE": 405, "OPTIONS": 405, "TRACE": 405, "PATCH": 405, "CONNECT": 405, "FOO": 405,
	} {
		w := ask(t, s, method, "/-/healthy", nil)
		if w.Code != want {
			t.Errorf("%s: %d, want %d", method, w.Code, want)
		}
		if want == 405 && w.Header().Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: Allow: %q", method, w.Header().Get("Allow"))
		}
	}
}

func TestRequestsHaveNoBody(t *testing.T) {
	r := httptest.NewRequest("GET", "/-/healthy", strings.NewReader(strings.Repeat("x", 1<<20)))
	w := httptest.NewRecorder()
	newServer(torchSession()).Handler().ServeHTTP(w, r)
	if w.Code != http.StatusRequestEntityTooLarge || w.Header().Get("Connection") != "close" {
		t.Errorf("%d, Connection: %s", w.Code, w.Header().Get("Connection"))
	}
}

// TestNamesOfOtherSitesAreRefused: a page of evil.example whose name leads to 127.0.0.1 must not
// read profiles.
func TestNamesOfOtherSitesAreRefused(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{Session: torchSession(), Ready: func() bool { return true }, Hosts: []string{"gpu.example.org", "proxy:8080"}})
	for name, want := range map[string]int{
		"localhost:9836": 200, "LOCALHOST": 200, "localhost.:9836": 200, "a.localhost": 200, "127.0.0.1:9836": 200, "[::1]:9836": 200, "[::1%25lo]": 200,
		"": 200, host: 200, host + ":9836": 200, "gpu.example.org": 200, "GPU.example.org:443": 200, "proxy": 200,
		"evil.example": 403, "evil.example:9836": 403, "localhost.evil.example": 403, "127.0.0.1.evil.example": 403, "notlocalhost": 403, "[evil]": 403, ":": 200,
	} {
		r := httptest.NewRequest("GET", "/-/healthy", nil)
		r.Host = name
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r.WithContext(withLocal(r, "127.0.0.1")))
		if w.Code != want {
			t.Errorf("%q on a loopback address: %d, want %d", name, w.Code, want)
		}
		w = httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r.WithContext(withLocal(r, "192.0.2.7")))
		if w.Code != 200 {
			t.Errorf("%q on another address: %d", name, w.Code)
		}
	}
}

func TestPagesOfOtherSitesMakeNoRequests(t *testing.T) {
	s := newServer(torchSession())
	for _, c := range []struct {
		site, mode string
		want       int
	}{
		{"cross-site", "no-cors", 403},
		{"cross-site", "cors", 403},
		{"cross-site", "navigate", 200}, // a link
		{"same-origin", "cors", 200},
		{"none", "navigate", 200},
		{"", "", 200}, // no browser
	} {
		if w := ask(t, s, "GET", "/-/healthy", map[string]string{"Sec-Fetch-Site": c.site, "Sec-Fetch-Mode": c.mode}); w.Code != c.want {
			t.Errorf("%s, %s: %d, want %d", c.site, c.mode, w.Code, c.want)
		}
	}
}

func TestEveryAnswerForbidsFramesAndScripts(t *testing.T) {
	s := newServer(torchSession())
	for _, path := range []string{"/", "/metrics", "/-/healthy", "/debug/pprof/gpu", "/debug/pprof/gpu?debug=1", "/debug/pprof/gpu?pid=x", "/api/v1/leaks", "/nothing"} {
		h := ask(t, s, "GET", path, nil).Header()
		for name, want := range map[string]string{
			"Content-Security-Policy": "frame-ancestors 'none'", "X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
		} {
			if !strings.Contains(h.Get(name), want) {
				t.Errorf("%s: %s is %q", path, name, h.Get(name))
			}
		}
		if h.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s may be read by other sites", path)
		}
	}
}

func TestErrorsQuoteNothingThatRuns(t *testing.T) {
	w := ask(t, newServer(torchSession()), "GET", "/debug/pprof/gpu?pod=%3Cscript%3Ealert(1)%3C/script%3E%1b[31m", nil)
	if kind := w.Header().Get("Content-Type"); w.Code != 404 || !strings.HasPrefix(kind, "text/plain") || strings.Contains(w.Body.String(), "\x1b") {
		t.Errorf("%d %s: %q", w.Code, kind, w.Body)
	}
}
