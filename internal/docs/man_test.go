// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/internal/manual"
	"github.com/vramprof/vramprof/internal/manual/roff"
)

// TestManPages compares packaging/man/*.7 with the documents.
func TestManPages(t *testing.T) {
	for _, p := range manual.Pages {
		if p.Section != "" || p.Name == roff.Main {
			continue // part of another page
		}
		d, err := p.Read()
		if err != nil {
			t.Fatal(err)
		}
		name := "vramprof-" + p.Name
		w := roff.New(roff.Head{Name: name, Section: 7, Subject: p.Subject})
		w.Document(d)
		see := []string{"vramprof(1)"}
		for _, page := range d.See {
			if page != roff.Main {
				see = append(see, roff.Reference(page))
			}
		}
		w.See(see)
		if err := roff.Compare(filepath.Join(root, "packaging/man", name+".7"), w.String(), *update); err != nil {
			t.Error(err)
		}
	}
}

// TestEveryPageReads reads each page, also those that are a section of a document.
func TestEveryPageReads(t *testing.T) {
	for _, p := range manual.Pages {
		if d, err := p.Read(); err != nil || len(d.Title) == 0 || len(d.Blocks) == 0 {
			t.Errorf("page %s: title %q, %d blocks, %v", p.Name, manual.Text(d.Title), len(d.Blocks), err)
		}
	}
}

var pageRow = regexp.MustCompile(`(?m)^\| \[[^\]]*\]\(((?:\.\./)?[\w-]+\.md)\) \| (.*) \|$`)

// forDevelopers are pages of docs that help does not show.
var forDevelopers = []string{"docs/packages.md", "docs/release.md"}

// TestHelpHasThePagesOfTheMap compares the list of pages with the tables of docs/README.md: each
// document has a page with the same subject, except those for people who change vramprof.
func TestHelpHasThePagesOfTheMap(t *testing.T) {
	subjects := map[string]string{}
	for _, p := range manual.Pages {
		if p.Section == "" {
			subjects[p.File] = p.Subject
		}
	}
	rows := pageRow.FindAllStringSubmatch(read(t, "docs/README.md"), -1)
	if len(rows) < 20 {
		t.Fatalf("docs/README.md has %d pages", len(rows))
	}
	for _, row := range rows {
		file, subject := path.Join("docs", row[1]), strings.ReplaceAll(row[2], "`", "")
		if slices.Contains(forDevelopers, file) || !strings.HasPrefix(file, "docs/") && subjects[file] == "" {
			continue
		}
		if subjects[file] != subject {
			t.Errorf("internal/manual: the subject of %s is %q, but docs/README.md has %q", file, subjects[file], subject)
		}
	}
}
