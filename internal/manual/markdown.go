// SPDX-License-Identifier: Apache-2.0

package manual

import (
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	tables "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// Document is a page, parsed.
type Document struct {
	Title  []Run
	Blocks []Block
	See    []string // pages to which it links, sorted
}

// Kind is what a block is.
type Kind uint8

// The kinds of blocks.
const (
	Heading Kind = iota
	Paragraph
	List
	Code
	Table
)

// Block is a part of a document. Only the fields of its kind are set.
type Block struct {
	Kind  Kind
	Level int       // of a heading: 2 or more
	Text  []Run     // of a heading or paragraph
	Items [][]Block // of a list
	First int       // the number of a list's first item; 0: the list has no numbers
	Lines []string  // of code
	Rows  [][]Cell  // of a table; the first has the names of the columns
}

// Cell is a cell of a table.
type Cell []Run

// Style is how text is written.
type Style uint8

// The styles.
const (
	Plain   Style = iota
	Literal       // `code`
	Strong
	Emphasis // also the text of links
)

// Run is text in one style.
type Run struct {
	Text  string
	Style Style
}

// parse parses the Markdown of a file.
func parse(source []byte, file string) Document {
	p := &parser{source: source, file: file}
	root := goldmark.New(goldmark.WithExtensions(extension.Table)).Parser().Parse(text.NewReader(source))
	d := Document{Blocks: p.blocks(root)}
	if len(d.Blocks) > 0 && d.Blocks[0].Kind == Heading {
		d.Title, d.Blocks = d.Blocks[0].Text, d.Blocks[1:]
	}
	slices.Sort(p.see)
	d.See = slices.Compact(p.see)
	return d
}

// section returns the range of blocks of a section: its heading, its text and its subsections.
func (d Document) section(title string) (begin, end int, ok bool) {
	begin = slices.IndexFunc(d.Blocks, func(b Block) bool { return b.Kind == Heading && Text(b.Text) == title })
	if begin < 0 {
		return 0, 0, false
	}
	for end = begin + 1; end < len(d.Blocks); end++ {
		if b := d.Blocks[end]; b.Kind == Heading && b.Level <= d.Blocks[begin].Level {
			break
		}
	}
	return begin, end, true
}

type parser struct {
	source []byte
	file   string
	see    []string
}

func (p *parser) blocks(parent ast.Node) (list []Block) {
	for n := parent.FirstChild(); n != nil; n = n.NextSibling() {
		switch n := n.(type) {
		case *ast.Heading:
			list = append(list, Block{Kind: Heading, Level: n.Level, Text: p.runs(n, Plain)})
		case *ast.Paragraph, *ast.TextBlock:
			list = append(list, Block{Kind: Paragraph, Text: p.runs(n, Plain)})
		case *ast.FencedCodeBlock, *ast.CodeBlock:
			list = append(list, Block{Kind: Code, Lines: p.lines(n)})
		case *ast.List:
			b := Block{Kind: List}
			if n.IsOrdered() {
				b.First = n.Start
			}
			for item := n.FirstChild(); item != nil; item = item.NextSibling() {
				b.Items = append(b.Items, p.blocks(item))
			}
			list = append(list, b)
		case *tables.Table:
			b := Block{Kind: Table}
			for row := n.FirstChild(); row != nil; row = row.NextSibling() {
				var cells []Cell
				for cell := row.FirstChild(); cell != nil; cell = cell.NextSibling() {
					cells = append(cells, p.runs(cell, Plain))
				}
				b.Rows = append(b.Rows, cells)
			}
			list = append(list, b)
		}
	}
	return list
}

func (p *parser) lines(n ast.Node) (lines []string) {
	segments := n.Lines()
	for i := range segments.Len() {
		segment := segments.At(i)
		lines = append(lines, strings.TrimRight(string(segment.Value(p.source)), "\n"))
	}
	return lines
}

// runs returns the text below n. Style is that of n.
func (p *parser) runs(n ast.Node, style Style) (list []Run) {
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		switch c := c.(type) {
		case *ast.Text:
			list = append(list, Run{p.text(c, style), style})
			if c.SoftLineBreak() || c.HardLineBreak() {
				list = append(list, Run{" ", style})
			}
		case *ast.String:
			list = append(list, Run{string(c.Value), style})
		case *ast.CodeSpan:
			list = append(list, Run{strings.ReplaceAll(Text(p.runs(c, Literal)), "\n", " "), Literal})
		case *ast.Emphasis:
			inner := Emphasis
			if c.Level > 1 {
				inner = Strong
			}
			list = append(list, p.runs(c, inner)...)
		case *ast.Link:
			list = append(list, p.link(c, style)...)
		case *ast.AutoLink:
			list = append(list, Run{string(c.URL(p.source)), style})
		case *ast.Image:
			list = append(list, Run{"[picture: " + Text(p.runs(c, Plain)) + "]", style})
		}
	}
	return list
}

// text returns the text of a node without backslashes and entities. Code has none.
func (p *parser) text(n *ast.Text, style Style) string {
	value := n.Segment.Value(p.source)
	if style == Literal {
		return string(value)
	}
	value = util.ResolveNumericReferences(util.ResolveEntityNames(value))
	return string(util.UnescapePunctuations(value))
}

// link returns the text of a link. The address of another site follows it.
func (p *parser) link(n *ast.Link, style Style) []Run {
	address := string(n.Destination)
	page := pageOf(address, p.file)
	if page != "" {
		p.see = append(p.see, page)
	}
	if style == Plain {
		style = Emphasis
	}
	list := p.runs(n, style)
	if page != "" && strings.HasSuffix(Text(list), ".md") { // a file that the reader may not have
		return []Run{{"vramprof help " + page, Literal}}
	}
	if strings.Contains(address, "://") && Text(list) != address {
		list = append(list, Run{" <" + address + ">", Plain})
	}
	return list
}

// Text returns text without its styles.
func Text(runs []Run) string {
	var b strings.Builder
	for _, r := range runs {
		b.WriteString(r.Text)
	}
	return b.String()
}
