// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/vramprof/vramprof/internal/manual"
	"github.com/vramprof/vramprof/internal/manual/roff"
)

// TestManPages compares packaging/man/*.1 with the help of the commands; -update writes them. Those
// of the pages (*.7) are tested in internal/docs.
func TestManPages(t *testing.T) {
	app := newApp(&program{}, nil, nil)
	compare := func(name string, w *roff.Writer) {
		t.Helper()
		if err := roff.Compare(filepath.Join("../../packaging/man", name+".1"), w.String(), *update); err != nil {
			t.Error(err)
		}
	}
	compare("vramprof", mainManPage(t, app))
	for _, command := range app.Commands {
		compare("vramprof-"+command.Name, commandManPage(command))
	}
}

func mainManPage(t *testing.T, app *cli.App) *roff.Writer {
	t.Helper()
	w := roff.New(roff.Head{Name: app.Name, Section: 1, Subject: app.Usage})
	w.Section("Synopsis")
	w.Text(app.UsageText)
	w.Section("Commands")
	see := []string{}
	for _, command := range app.Commands {
		w.Item(command.Name, command.Usage)
		see = append(see, "vramprof-"+command.Name+"(1)")
	}
	usage, _ := manual.Find(roff.Main)
	d, err := usage.Read()
	if err != nil {
		t.Fatal(err)
	}
	w.Blocks(d.Blocks)
	w.Section("Pages")
	for _, page := range manual.Pages {
		if page.Section == "" && page.Name != roff.Main {
			w.Item(roff.Reference(page.Name), page.Subject)
		}
	}
	w.See(see)
	return w
}

func commandManPage(command *cli.Command) *roff.Writer {
	w := roff.New(roff.Head{Name: "vramprof-" + command.Name, Section: 1, Subject: command.Usage})
	w.Section("Synopsis")
	w.Text(command.UsageText)
	if command.Description != "" {
		w.Section("Description")
		w.Text(command.Description)
	}
	w.Section("Options")
	for _, flag := range append(command.Flags, cli.HelpFlag) {
		short, long, text := flagText(flag)
		if short != "" {
			long = short + ", " + long
		}
		w.Item(long, text)
	}
	see := []string{"vramprof(1)"}
	if page, ok := manual.Find(command.Name); ok {
		see = append(see, roff.Reference(page.Name))
	}
	w.See(see)
	return w
}
