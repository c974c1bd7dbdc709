// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/vramprof/vramprof/internal/untrusted"
	reportjson "github.com/vramprof/vramprof/report/json"
	"github.com/vramprof/vramprof/tracer/cudaapi"
	"github.com/vramprof/vramprof/tracer/probes"
	"github.com/vramprof/vramprof/tracer/procaddr"
)

// entriesCommand is a hidden first argument: vramprof runs itself with it to load the driver's
// library and print what its cuGetProcAddress returns for the other arguments.
const entriesCommand = "print-cuda-entries"

// RunHidden prints the answers and exits if args ask for it.
func RunHidden(args []string) {
	if len(args) < 2 || args[1] != entriesCommand {
		return
	}
	if err := procaddr.Print(args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// askEntries asks this host's driver, and compares its answers with the probe table.
func askEntries(ctx context.Context) reportjson.EntriesReport {
	r := reportjson.EntriesReport{Functions: []string{}, Never: []string{}, Unprobed: []string{}, Answers: []reportjson.AnswerReport{}}
	answers, rows, err := entriesOf(ctx)
	if err != nil {
		r.Error = untrusted.Clean(err.Error())
		return r
	}
	probed := map[uint64]string{}
	for _, at := range rows.Found {
		probed[at.Symbol] = at.Name
	}
	sum := answers.Summarize(probed)
	r.Library, r.Names = untrusted.Clean(path.Base(answers.Path)), sum.Names
	r.Functions, r.Never = append(r.Functions, sum.Functions...), append(r.Never, sum.Never...)
	for _, text := range sum.Unprobed {
		r.Unprobed = append(r.Unprobed, untrusted.Clean(text))
	}
	for _, a := range answers.List {
		by := "cuGetProcAddress"
		if a.Second {
			by += "_v2"
		}
		r.Answers = append(r.Answers, reportjson.AnswerReport{
			Name: untrusted.Clean(a.Name), By: by, Mode: procaddr.Modes[a.Mode], From: cudaVersion(a.From), To: cudaVersion(a.To), Function: untrusted.Clean(a.Function),
		})
	}
	return r
}

func entriesOf(ctx context.Context) (*procaddr.Answers, probes.Rows, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, probes.Rows{}, err
	}
	var names []string
	for _, row := range cudaapi.Table {
		if row.Layer == cudaapi.Driver {
			names = append(names, row.Name)
		}
	}
	answers, err := procaddr.Ask(ctx, procaddr.Names(names), self, entriesCommand)
	if err != nil {
		return nil, probes.Rows{}, err
	}
	if file, err := filepath.EvalSymlinks(answers.Path); err == nil {
		answers.Path = file // libcuda.so.550.163.01
	}
	f, err := os.Open(answers.Path)
	if err != nil {
		return nil, probes.Rows{}, err
	}
	defer f.Close()
	rows, err := probes.Resolve(f, cudaapi.Driver)
	if err == nil && len(answers.List) == 0 {
		err = errors.New("it returns none of the traced functions")
	}
	return answers, rows, err
}

// cudaVersion returns "12.4" for 12040.
func cudaVersion(v int) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }

// entriesText returns sentences about the answers of cuGetProcAddress.
func entriesText(r *reportjson.EntriesReport) (list []string) {
	if r.Error != "" {
		return []string{"cuGetProcAddress was not asked: " + r.Error}
	}
	text := fmt.Sprintf("cuGetProcAddress has answers for %d names: %d functions, all with a probe", r.Names, len(r.Functions))
	if len(r.Unprobed) > 0 {
		text = fmt.Sprintf("cuGetProcAddress has answers for %d names: %d functions with a probe, and %d without", r.Names, len(r.Functions), len(r.Unprobed))
	}
	list = append(list, text)
	if len(r.Unprobed) > 0 {
		list = append(list, "calls that vramprof would miss: "+strings.Join(r.Unprobed, ", "))
	}
	if len(r.Never) > 0 {
		list = append(list, "never returned: "+strings.Join(r.Never, ", "))
	}
	return list
}
