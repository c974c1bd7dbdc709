// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"

	"github.com/dustin/go-humanize"
	"github.com/urfave/cli/v2"

	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/internal/terminal"
	"github.com/vramprof/vramprof/internal/whatif"
	reportjson "github.com/vramprof/vramprof/report/json"
)

func whatifCommand() *cli.Command {
	return &cli.Command{
		Name:      "whatif",
		Usage:     "replay PyTorch's allocator with other settings, or on another GPU",
		UsageText: "vramprof whatif [OPTIONS] FILE",
		Description: "FILE is a capture of vramprof record --for whatif, or a memory snapshot of PyTorch with a history of all allocations. Its allocations are replayed through a simulator " +
			"of PyTorch's caching allocator. Two figures follow for each setting: what it reserves at most, and the least memory in which it does not run out of memory, because PyTorch " +
			"gives its cache back before it fails. Where the order of addresses decides, which the driver gives, a figure is a range over 12 orders. A recording is refused, with the " +
			"reason, unless the replay of its own settings reserves what was recorded, to the byte.",
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "set", Usage: "try `SETTINGS` as all of PYTORCH_CUDA_ALLOC_CONF; repeatable (default: usual ones)"},
			&cli.IntFlag{Name: "empty-cache", Usage: "try torch.cuda.empty_cache() after every `N` steps (default: each step, without --set)"},
			&cli.StringFlag{Name: "gpu", Usage: "say whether it runs on a GPU of `SIZE`, such as 24GiB"},
			&cli.StringFlag{Name: "torch", Usage: "a memory snapshot is of PyTorch `VERSION`, which it does not name"},
			&cli.BoolFlag{Name: "json", Usage: "write JSON"},
			readFlags()[0],
		},
		Action: whatIf,
	}
}

func whatIf(c *cli.Context) error {
	if c.Args().Len() != 1 {
		return fault.Usage(errors.New("name a capture or a memory snapshot of PyTorch (vramprof whatif run.vram)"))
	}
	tries := whatif.Tries{Settings: c.StringSlice("set"), Empty: c.Int("empty-cache")}
	if err := tries.Check(); err != nil {
		return fault.Usage(fmt.Errorf("--set or --empty-cache: %w", err))
	}
	var gpu uint64
	if c.IsSet("gpu") {
		var err error
		if gpu, err = humanize.ParseBytes(c.String("gpu")); err != nil || gpu == 0 {
			return fault.Usage(fmt.Errorf("--gpu is a size such as 24GiB, not %q", c.String("gpu")))
		}
	}
	name := c.Args().First()
	jobs, done, err := whatif.Files{Options: sourceOptions(c), Torch: c.String("torch")}.Open(name)
	if err != nil {
		return err
	}
	defer done()
	r, err := whatif.Report(name, jobs, tries.Scenarios, gpu)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		err = reportjson.WriteWhatIf(c.App.Writer, r)
	} else {
		err = whatif.WriteText(c.App.Writer, r, terminal.Width())
	}
	if err == nil && whatif.Refused(jobs) {
		err = errors.New("nothing in the file can be replayed")
	}
	return err
}
