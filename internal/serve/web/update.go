// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/vramprof/vramprof/report/html"
)

// update is the data of the page as of one moment.
type update struct {
	id, after string // after is the id of the update that changed is relative to
	taken     time.Time
	sections  []html.Section
	changed   []html.Section
	pause     time.Duration // until the next one

	whole, part message
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

// withAge returns all sections of an update, its id and its age among them.
func (u *update) withAge() []html.Section {
	list := append([]html.Section{}, u.sections...)
	return append(list, section("id", u.id), section("age", time.Since(u.taken).Milliseconds()))
}

func section(name string, value any) html.Section {
	text, _ := json.Marshal(value) // a string or a number
	return html.Section{Name: name, JSON: text}
}

// gzipHeader begins a gzip stream.
var gzipHeader = []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255}

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
