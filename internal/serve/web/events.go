// SPDX-License-Identifier: Apache-2.0

package web

import (
	"fmt"
	"net/http"
	"time"
)

const (
	retryTime  = "1000"           // ms: when a browser connects again
	stillEvery = 15 * time.Second // an event says that the server is there
	takeTime   = 10 * time.Second // to take an update
)

// serveEvents sends updates of the page as server-sent events: "data" has the sections that have
// changed since the update with the id "after", or all of them.
func (s *Server) serveEvents(w http.ResponseWriter, r *http.Request) {
	q, err := s.parse(r, "after")
	if err == nil {
		err = s.seesAll(r)
	}
	if err != nil {
		writeError(w, err)
		return
	}
	after := q.after
	if id := r.Header.Get("Last-Event-ID"); id != "" && len(id) <= maxEventID {
		after = id
	}
	x := s.page.join(s.peerOf(r))
	if x == nil {
		busy(w)
		return
	}
	defer s.page.leave(x)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Vary", "Accept-Encoding")
	h.Set("X-Accel-Buffering", "no") // a proxy passes events on at once
	zipped := acceptsGzip(r)
	out := stream{w: w, c: http.NewResponseController(w)}
	_ = out.c.SetReadDeadline(time.Time{}) // there is nothing to read
	if zipped {
		h.Set("Content-Encoding", "gzip")
		out.begin = gzipHeader
	}
	if r.Method == http.MethodHead || !out.write(packText([]byte("retry: "+retryTime+"\n\n"), zipped)) {
		return
	}
	still := time.NewTicker(stillEvery)
	defer still.Stop()
	for {
		select {
		case <-r.Context().Done():
			return
		case <-s.ending:
			return
		case <-x.gone:
			return
		case <-still.C:
			if !out.write(packText([]byte("event: still\ndata:\n\n"), zipped)) {
				return
			}
		case <-x.news:
			u, err := s.page.current()
			if err != nil || u.id == after {
				continue
			}
			if !out.write(u.message(after, zipped)) {
				return
			}
			after = u.id
			if age := time.Since(u.taken); age > momentAge && !out.write(packText(fmt.Appendf(nil, "event: age\ndata: %d\n\n", age.Milliseconds()), zipped)) {
				return
			}
		}
	}
}

// stream writes to one client.
type stream struct {
	w     http.ResponseWriter
	c     *http.ResponseController
	begin []byte // precedes everything
}

// write reports whether the client has taken a text in time.
func (o *stream) write(text []byte) bool {
	_ = o.c.SetWriteDeadline(time.Now().Add(takeTime))
	defer o.c.SetWriteDeadline(time.Time{}) // one that passes later would end a stream of HTTP/2
	for _, part := range [][]byte{o.begin, text} {
		if _, err := o.w.Write(part); err != nil {
			return false
		}
	}
	o.begin = nil
	return o.c.Flush() == nil
}
