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

// asked returns a request as a client sends it to an address of this machine.
func asked(r *http.Request, ip string, by peer) *http.Request {
	ctx := context.WithValue(r.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.ParseIP(ip), Port: 9836})
	return r.WithContext(context.WithValue(ctx, peerKey{}, by))
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

// TestNamesOfOtherSitesAreRefused: a page of evil.example whose name leads to an address of this
// machine must not read profiles.
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
		for _, ip := range []string{"127.0.0.1", "::1", "192.0.2.7", "172.17.0.2"} { // the last is a container's, whose port is published on 127.0.0.1
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, asked(r, ip, testPeer(1)))
			if w.Code != want {
				t.Errorf("%q on %s: %d, want %d", name, ip, w.Code, want)
			}
		}
	}
}

func TestPagesOfOtherSitesMakeNoRequests(t *testing.T) {
	s := newServer(torchSession())
	for _, c := range []struct {
		site, mode, to string
		want           int
	}{
		{"cross-site", "no-cors", "image", 403},
		{"cross-site", "cors", "empty", 403},
		{"cross-site", "navigate", "document", 200}, // a link
		{"cross-site", "navigate", "iframe", 403},
		{"cross-site", "navigate", "object", 403},
		{"cross-site", "navigate", "", 403},
		{"same-site", "no-cors", "image", 403}, // of another port of localhost
		{"same-site", "navigate", "frame", 403},
		{"same-site", "navigate", "document", 200},
		{"same-origin", "cors", "empty", 200},
		{"none", "navigate", "document", 200},
		{"", "", "", 200}, // no browser
	} {
		for _, path := range []string{"/-/healthy", "/", "/debug/pprof/gpu"} {
			before := s.budgets.all.left
			w := ask(t, s, "GET", path, map[string]string{"Sec-Fetch-Site": c.site, "Sec-Fetch-Mode": c.mode, "Sec-Fetch-Dest": c.to})
			if w.Code != c.want {
				t.Errorf("%s: %s, %s, %s: %d, want %d", path, c.site, c.mode, c.to, w.Code, c.want)
			}
			if c.want == 403 && s.budgets.all.left < before {
				t.Errorf("%s: %s, %s, %s: an answer was composed", path, c.site, c.mode, c.to)
			}
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
