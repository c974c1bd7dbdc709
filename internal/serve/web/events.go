// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/vramprof/vramprof/report/html"
)

const (
	retryTime  = "1000"           // ms: when a browser connects again
	stillEvery = 15 * time.Second // an event says that the server is there
	takeTime   = 10 * time.Second // to take an update
	maxEventID = 64               // bytes
)

// gzipHeader begins a gzip stream.
var gzipHeader = []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255}

// watchers are the pages that follow the session.
type watchers struct {
	mu   sync.Mutex
	set  map[*watcher]struct{}
	next uint64        // number of the next one
	last time.Time     // when there was one
	runs bool          // a goroutine composes updates, or takes moments for the chart
	wake chan struct{} // for this goroutine: there is a new page
}

// watcher is a page. One that is slow finds only the latest update: nothing is queued.
type watcher struct {
	peer   peer
	number uint64
	news   chan struct{}
	gone   chan struct{} // closed when another page takes its place
}

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

// join adds a page, which is told of the next update at once; nil: there are too many.
func (p *page) join(of peer) *watcher {
	l := &p.watchers
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.set) >= maxWatchers && !l.makeRoom(of) {
		return nil
	}
	x := &watcher{peer: of, number: l.next, news: make(chan struct{}, 1), gone: make(chan struct{})}
	l.next++
	l.set[x] = struct{}{}
	x.news <- struct{}{}
	if !l.runs {
		l.runs = true
		go p.follow()
	}
	select {
	case l.wake <- struct{}{}:
	default:
	}
	return x
}

// makeRoom ends the oldest page of the peer with the most, if that has at least two more than the
// one that needs a place. l.mu is held.
func (l *watchers) makeRoom(of peer) bool {
	held := map[peer]int{}
	for x := range l.set {
		held[x.peer]++
	}
	var most *watcher
	for x := range l.set {
		if most == nil || held[x.peer] > held[most.peer] || held[x.peer] == held[most.peer] && x.number < most.number {
			most = x
		}
	}
	if held[most.peer] < held[of]+2 {
		return false
	}
	close(most.gone)
	delete(l.set, most)
	return true
}

func (p *page) leave(x *watcher) {
	p.watchers.mu.Lock()
	delete(p.watchers.set, x)
	p.watchers.mu.Unlock()
}

// any reports whether anybody watches.
func (l *watchers) any() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.set) > 0
}

// follow composes updates as long as anybody watches. For some time afterwards it only takes moments
// for the chart, so that a page that is opened again has them.
func (p *page) follow() {
	for goOn := true; goOn; goOn = p.goesOn() {
		pause := longestUpdate
		if !p.watchers.any() {
			pause = p.sample()
		} else if u, err := p.current(); err == nil {
			pause = u.pause
		}
		p.watchers.tell()
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-p.watchers.wake:
			timer.Stop()
		}
	}
}

// goesOn reports whether there are pages, or were not long ago.
func (p *page) goesOn() bool {
	l := &p.watchers
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.set) > 0 {
		l.last = time.Now()
	}
	l.runs = time.Since(l.last) < p.linger
	return l.runs
}

// tell tells all pages of an update.
func (l *watchers) tell() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for x := range l.set {
		select {
		case x.news <- struct{}{}:
		default: // it has not taken the last one yet
		}
	}
}

// message is an event, which is composed and compressed once for all clients.
type message struct {
	once          sync.Once
	plain, zipped []byte
}

// message returns the event that brings a client with the update after to this one.
func (u *update) message(after string, zipped bool) []byte {
	m, list := &u.whole, u.sections
	if after != "" && after == u.after {
		m, list = &u.part, u.changed
	} else {
		after = ""
	}
	m.once.Do(func() {
		list = append(append([]html.Section{}, list...), section("id", u.id), section("age", time.Since(u.taken).Milliseconds()))
		var b bytes.Buffer
		b.WriteString("id: " + u.id + "\nevent: data\ndata: {\"after\":")
		b.Write(section("", after).JSON)
		b.WriteString(",\"data\":")
		b.Write(html.Join(list)) // one line
		b.WriteString("}\n\n")
		m.plain = b.Bytes()
		m.zipped = packText(m.plain, true)
	})
	if zipped {
		return m.zipped
	}
	return m.plain
}

// packText compresses a text so that it can follow any other in a gzip stream.
func packText(text []byte, zipped bool) []byte {
	if !zipped {
		return text
	}
	out, _ := packed(nil, text, false) // a buffer takes everything
	return out
}

// packed compresses a text behind a header; end ends the stream.
func packed(header, text []byte, end bool) ([]byte, error) {
	out := bytes.NewBuffer(append([]byte{}, header...))
	z, err := flate.NewWriter(out, flate.BestSpeed+2)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(text); err != nil {
		return nil, err
	}
	if !end {
		err := z.Flush()
		return out.Bytes(), err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	tail := binary.LittleEndian.AppendUint32(out.Bytes(), crc32.ChecksumIEEE(text))
	return binary.LittleEndian.AppendUint32(tail, uint32(len(text))), nil
}

// acceptsGzip reports whether a client takes gzip.
func acceptsGzip(r *http.Request) bool {
	for _, item := range strings.Split(r.Header.Get("Accept-Encoding"), ",") {
		name, weight, _ := strings.Cut(strings.TrimSpace(item), ";")
		if name == "gzip" && strings.ReplaceAll(weight, " ", "") != "q=0" {
			return true
		}
	}
	return false
}
