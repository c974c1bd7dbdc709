// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"encoding/json"
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
