// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"charm.land/bubbles/v2/key"
	"charm.land/bubbles/v2/textinput"
	"charm.land/bubbles/v2/viewport"
	tea "charm.land/bubbletea/v2"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// view is one of the four views.
type view int

const (
	viewGPUs view = iota
	viewProcesses
	viewLines
	viewTimeline
	viewCount
)

var viewNames = [viewCount]string{"GPUs", "Processes", "Lines", "Timeline"}

// Model is a screen. Its methods are those of tea.Model, which call it in one goroutine.
type Model struct {
	o       Options
	reader  *reader
	reading bool    // a moment is summed up in another goroutine
	pending *Moment // the next one

	latest, shown *books // shown is latest unless frozen; nil: no data yet
	frozen        bool
	series        *series
	chronicle     *chronicle
	status        *happening // of the keys w and s; nil: none
	statusAge     int        // moments since then
	capturing     bool
	busy          bool // w or s is at work

	view          view
	process       ledger.ProcessID // whose lines and timeline are shown; the zero value: of all
	gpu           *gpuKey          // whose processes are shown; nil: of all
	cursors       [viewCount]cursor
	sorts         [viewCount]string
	reversed      [viewCount]bool
	tree, merged  bool
	folds         map[uint64]bool // branches that the user folded or unfolded
	filter        filter
	input         textinput.Model
	typing        bool
	page          page
	text          viewport.Model
	detail        detail
	width, height int
	palette       *palette

	grove grove  // the tree of lines
	lists lists  // rows of views, made by need
	drawn string // the screen as it was drawn last
	stale bool   // it has changed since
}

// page is a text that covers the views.
type page int

const (
	pageNone page = iota
	pageHelp
	pageDoubts
	pageDetail
)

// New returns a screen without data. It shows the Moments that it is sent.
func New(o Options) *Model {
	m := &Model{
		o: o, reader: newReader(&o), series: newSeries(), chronicle: newChronicle(), view: viewProcesses, tree: !o.Flat,
		folds: map[uint64]bool{}, palette: newPalette(true), width: 80, height: 24, stale: true,
	}
	m.sorts = [viewCount]string{viewGPUs: "gpu", viewProcesses: "live", viewLines: "own", viewTimeline: "live"}
	if m.tree {
		m.sorts[viewLines] = "total"
	}
	m.sortBy(o.Sort)
	m.input = textinput.New()
	m.input.Prompt, m.input.CharLimit = "/", maxFilter
	m.input.KeyMap.Paste.SetEnabled(false) // it would run another program
	still := m.input.Styles()
	still.Cursor.Blink = false // or it would be drawn again all the time
	m.input.SetStyles(still)
	m.text = viewport.New()
	m.text.SoftWrap = false
	return m
}

// Init implements tea.Model.
func (m *Model) Init() tea.Cmd { return tea.RequestBackgroundColor }

// booksMsg is a moment, summed up.
type booksMsg struct{ books *books }

// doneMsg is what the key w or s did.
type doneMsg struct {
	text    string
	err     error
	capture bool // it was s
	on      bool
}

// Update implements tea.Model.
func (m *Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	m.stale = true
	switch msg := msg.(type) {
	case Moment:
		return m, m.receive(msg)
	case booksMsg:
		m.reading = false
		m.take(msg.books)
		if next := m.pending; next != nil {
			m.pending = nil
			return m, m.receive(*next)
		}
	case doneMsg:
		m.done(msg)
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
		m.fillPage()
	case tea.BackgroundColorMsg:
		m.palette = newPalette(msg.IsDark())
	case tea.KeyPressMsg:
		return m, m.press(msg)
	default:
		m.stale = false
		if m.typing {
			m.stale = true
			var cmd tea.Cmd
			m.input, cmd = m.input.Update(msg) // text that is pasted, and the cursor
			m.applyFilter()
			return m, cmd
		}
	}
	return m, nil
}

// receive has a moment summed up in another goroutine: stacks may need names. While one is summed
// up, only the newest waits.
func (m *Model) receive(x Moment) tea.Cmd {
	if m.reading {
		if m.pending != nil {
			x = m.pending.above(x)
			x.OOMs = append(m.pending.OOMs[:len(m.pending.OOMs):len(m.pending.OOMs)], x.OOMs...)
			if x.Note == "" {
				x.Note = m.pending.Note
			}
		}
		m.pending = &x
		m.stale = false
		return nil
	}
	m.reading, m.stale = true, false
	r := m.reader
	return func() tea.Msg { return booksMsg{r.read(x)} }
}

func (m *Model) take(b *books) {
	m.series.add(b)
	before := m.chronicle.told
	m.chronicle.take(b)
	if m.statusAge++; m.chronicle.told > before || m.statusAge > maxStatus {
		m.status = nil
	}
	m.latest = b
	if !m.frozen || m.shown == nil {
		m.show(b)
	}
}

// maxStatus is for how many moments the result of w or s stays, unless something happens.
const maxStatus = 10

// show draws the views from a moment.
func (m *Model) show(b *books) {
	m.shown = b
	m.lists.drop()
	m.fillPage()
}

func (m *Model) press(msg tea.KeyPressMsg) tea.Cmd {
	if m.typing {
		return m.typeFilter(msg)
	}
	is := func(b key.Binding) bool { return key.Matches(msg, b) }
	switch {
	case is(bound.quit):
		return tea.Quit
	case is(bound.help):
		m.toggle(pageHelp)
	case is(bound.doubts):
		m.toggle(pageDoubts)
	case is(bound.freeze):
		m.freeze()
	case is(bound.profile):
		return m.writeProfile()
	case is(bound.capture):
		return m.toggleCapture()
	case m.page != pageNone:
		return m.pressInPage(msg)
	default:
		return m.pressInView(msg)
	}
	return nil
}

func (m *Model) pressInView(msg tea.KeyPressMsg) tea.Cmd {
	is := func(b key.Binding) bool { return key.Matches(msg, b) }
	switch {
	case m.pressMove(msg):
	case is(bound.gpus):
		m.change(viewGPUs)
	case is(bound.processes):
		m.change(viewProcesses)
	case is(bound.lines):
		m.change(viewLines)
	case is(bound.timeline):
		m.change(viewTimeline)
	case is(bound.next):
		m.change((m.view + 1) % viewCount)
	case is(bound.previous):
		m.change((m.view + viewCount - 1) % viewCount)
	case is(bound.filter):
		m.typing = true
		return m.input.Focus()
	case is(bound.sortLeft):
		m.moveSort(-1)
	case is(bound.sortRight):
		m.moveSort(1)
	case is(bound.reverse):
		m.reversed[m.view] = !m.reversed[m.view]
		m.lists.drop()
	case is(bound.tree):
		m.toggleTree()
	case is(bound.merge):
		m.merged = !m.merged
		m.lists.drop()
	case is(bound.left):
		m.fold(true)
	case is(bound.right):
		m.fold(false)
	case is(bound.open):
		m.open()
	case is(bound.back):
		m.back()
	}
	return nil
}

// pressMove moves the cursor, if the key is for that.
func (m *Model) pressMove(msg tea.KeyPressMsg) bool {
	is := func(b key.Binding) bool { return key.Matches(msg, b) }
	rows, c := m.rows(), &m.cursors[m.view]
	pageRows := max(m.frame().bodyRows()-1, 1)
	switch {
	case is(bound.up):
		c.move(-1, rows)
	case is(bound.down):
		c.move(1, rows)
	case is(bound.pageUp):
		c.move(-pageRows, rows)
	case is(bound.pageDown):
		c.move(pageRows, rows)
	case is(bound.home):
		c.at = 0
	case is(bound.end):
		c.at = max(rows-1, 0)
	default:
		return false
	}
	m.lists.keep(m)
	return true
}

func (m *Model) change(v view) {
	m.view = v
	m.lists.drop()
}

func (m *Model) toggleTree() {
	if m.view != viewLines {
		return
	}
	m.tree = !m.tree
	m.cursors[viewLines] = cursor{}
	m.sorts[viewLines] = "own"
	if m.tree {
		m.sorts[viewLines] = "total"
	}
	m.lists.drop()
}

// freeze stops the display where it is, or lets it go on.
func (m *Model) freeze() {
	m.frozen = !m.frozen
	if !m.frozen && m.latest != nil {
		m.show(m.latest)
	}
}

func (m *Model) open() {
	b := m.shown
	if b == nil {
		return
	}
	switch m.view {
	case viewGPUs:
		if g := m.chosenGPU(); g != nil {
			m.gpu = &gpuKey{g.key.uuid, g.key.device}
			m.cursors[viewProcesses] = cursor{}
			m.change(viewProcesses)
		}
	case viewProcesses:
		if x := m.chosenProcess(); x != nil {
			m.process = x.key.process
			m.cursors[viewLines] = cursor{}
			m.change(viewLines)
		}
	case viewTimeline:
		if key, ok := m.chosenTrack(); ok {
			m.process = key
			m.cursors[viewLines] = cursor{}
			m.change(viewLines)
		}
	case viewLines:
		m.openDetail()
	}
}

// back undoes the last choice: the filter, the process, the GPU.
func (m *Model) back() {
	switch {
	case m.filter.text != "":
		m.setFilter("")
	case m.view >= viewLines && m.process != ledger.ProcessID{}:
		m.process = ledger.ProcessID{}
		if m.view == viewLines {
			m.view = viewProcesses
		}
	case m.view == viewProcesses && m.gpu != nil:
		m.gpu = nil
		m.view = viewGPUs
	}
	m.lists.drop()
}
