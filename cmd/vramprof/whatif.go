// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/dustin/go-humanize"
	"github.com/urfave/cli/v2"

	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/internal/remedy"
	"github.com/vramprof/vramprof/internal/terminal"
	"github.com/vramprof/vramprof/internal/whatif"
	reportjson "github.com/vramprof/vramprof/report/json"
)

func whatifCommand() *cli.Command {
	return &cli.Command{
		Name:      "whatif",
		Usage:     "replay PyTorch's allocator with other settings, on another GPU, or for a changed program",
		UsageText: "vramprof whatif [OPTIONS] FILE [FILE]",
		Description: "FILE is a capture of vramprof record --for whatif, or a memory snapshot of PyTorch with a history of all allocations. Its allocations are replayed through a simulator " +
			"of PyTorch's caching allocator. Two figures follow for each setting: what it reserves at most, and the least memory in which it does not run out of memory, because PyTorch " +
			"gives its cache back before it fails. Where the order of addresses decides, which the driver gives, a figure is a range over 12 orders. A history is refused, with the " +
			"reason, unless the replay of the recorded settings reserves what was recorded, to the byte. With --batch, a second FILE may be a capture of the same program with " +
			"batches of another size: the difference shows what scales.",
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "set", Usage: "try `SETTINGS` as all of PYTORCH_CUDA_ALLOC_CONF; repeatable (default: usual ones)"},
			&cli.IntFlag{Name: "empty-cache", Usage: "try torch.cuda.empty_cache() after every `N` steps (default: each step, without --set)"},
			&cli.StringFlag{Name: "gpu", Usage: "report whether it runs on a GPU of `SIZE`, such as 24GiB"},
			&cli.StringFlag{Name: "torch", Usage: "a memory snapshot is of PyTorch `VERSION`, which it does not name"},
			&cli.BoolFlag{Name: "json", Usage: "write JSON"},
			&cli.StringSliceFlag{Name: "without", Usage: "try the program with no memory kept by `FILE:LINE`: each result is dropped, or moved to the host; repeatable"},
			&cli.StringSliceFlag{Name: "checkpoint", Usage: "try activation checkpointing of `FUNCTION`, such as Block.forward or model.py:Block.forward; repeatable"},
			&cli.StringSliceFlag{Name: "offload", Usage: "try to keep on the host what `CODE` saves for the backward pass: a FUNCTION or a FILE:LINE; repeatable"},
			&cli.BoolFlag{Name: "set-to-none", Usage: "try optimizer.zero_grad(set_to_none=True) right after optimizer.step()"},
			&cli.BoolFlag{Name: "optimizer-8bit", Usage: "try an optimizer with its state in 8 bits"},
			&cli.IntFlag{Name: "shard-optimizer", Usage: "try the optimizer's state divided between `N` ranks"},
			&cli.BoolFlag{Name: "half", Usage: "try weights, activations, gradients and state in half precision"},
			&cli.Float64Flag{Name: "batch", Usage: "try batches `FACTOR` times as large, where the file has steps of two sizes, or a second FILE has another"},
			readFlags()[0],
		},
		Action: whatIf,
	}
}

// remediesOf reads the changes of the program that whatif tries.
func remediesOf(c *cli.Context) (list []remedy.Remedy, err error) {
	for _, text := range c.StringSlice("without") {
		line, ok := remedy.ParseLine(text)
		if !ok {
			return nil, fmt.Errorf("--without is FILE:LINE, such as train.py:72, not %q", text)
		}
		list = append(list, remedy.Remedy{Kind: remedy.NoLine, Line: line})
	}
	if c.Bool("set-to-none") {
		list = append(list, remedy.Remedy{Kind: remedy.NoGradient})
	}
	for _, text := range c.StringSlice("checkpoint") {
		list = append(list, remedy.Remedy{Kind: remedy.Recompute, Function: remedy.ParseFunction(text)})
	}
	for _, text := range c.StringSlice("offload") {
		list = append(list, remedy.Remedy{Kind: remedy.ToHost, Code: remedy.ParseCode(text)})
	}
	if c.Bool("optimizer-8bit") {
		list = append(list, remedy.Remedy{Kind: remedy.EightBits})
	}
	if c.IsSet("shard-optimizer") {
		n := c.Int("shard-optimizer")
		if n < 2 {
			return nil, fmt.Errorf("--shard-optimizer is a number of ranks from 2, not %d", n)
		}
		list = append(list, remedy.Remedy{Kind: remedy.Sharded, Ranks: n})
	}
	if c.Bool("half") {
		list = append(list, remedy.Remedy{Kind: remedy.HalfFloat})
	}
	if c.IsSet("batch") {
		factor := c.Float64("batch")
		if !(factor > 0 && factor <= 1000) {
			return nil, fmt.Errorf("--batch is a factor up to 1000, such as 1.5, not %v", factor)
		}
		list = append(list, remedy.Remedy{Kind: remedy.Batches, Factor: factor})
	}
	return list, nil
}

func fitCommand() *cli.Command {
	return &cli.Command{
		Name:      "fit",
		Usage:     "find settings and changes with which a recorded program fits a GPU",
		UsageText: "vramprof fit --gpu SIZE FILE",
		Description: "FILE is what vramprof whatif reads. fit replays it on a GPU of the given size with the settings of PyTorch's allocator and with changes of the program: lines that keep " +
			"memory, activation checkpointing, dropped gradients, an optimizer with 8 bits, half precision. It prints the shortest list with which the program does not run out of " +
			"memory, each item with its saving on top of the items before it; or the nearest miss.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "gpu", Usage: "the size of the GPU's memory is `SIZE`, such as 24GiB"},
			&cli.StringFlag{Name: "torch", Usage: "a memory snapshot is of PyTorch `VERSION`, which it does not name"},
			&cli.BoolFlag{Name: "json", Usage: "write JSON"},
			readFlags()[0],
		},
		Action: fit,
	}
}

func fit(c *cli.Context) error {
	if c.Args().Len() != 1 || !c.IsSet("gpu") {
		return fault.Usage(errors.New("name a GPU's memory, and a capture or a memory snapshot of PyTorch (vramprof fit --gpu 24GiB run.vram)"))
	}
	gpu, err := gpuSize(c)
	if err != nil {
		return err
	}
	name := c.Args().First()
	jobs, done, err := whatif.Files{Options: sourceOptions(c), Torch: c.String("torch")}.Open(name)
	if err != nil {
		return err
	}
	defer done()
	r, err := whatif.Fit(name, jobs, gpu)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		err = reportjson.WriteFit(c.App.Writer, r)
	} else {
		err = whatif.WriteFitText(c.App.Writer, r, terminal.Width())
	}
	return cmp.Or(err, refusal(jobs))
}

// leastGPU is below any amount of GPU memory that a person means: 24 is none of 24 GiB.
const leastGPU = 1 << 20

// gpuSize reads --gpu, in bytes; 0: it is not set.
func gpuSize(c *cli.Context) (uint64, error) {
	if !c.IsSet("gpu") {
		return 0, nil
	}
	gpu, err := humanize.ParseBytes(c.String("gpu"))
	if err != nil || gpu < leastGPU {
		return 0, fault.Usage(fmt.Errorf("--gpu is a size such as 24GiB, not %q", c.String("gpu")))
	}
	return gpu, nil
}

func whatIf(c *cli.Context) error {
	files := c.Args().Slice()
	if len(files) != 1 && (len(files) != 2 || !c.IsSet("batch")) {
		return fault.Usage(errors.New("name a capture or a memory snapshot of PyTorch (vramprof whatif run.vram)"))
	}
	tries := whatif.Tries{Settings: c.StringSlice("set"), Empty: c.Int("empty-cache")}
	if err := tries.Check(); err != nil {
		return fault.Usage(fmt.Errorf("--set or --empty-cache: %w", err))
	}
	gpu, err := gpuSize(c)
	if err != nil {
		return err
	}
	if tries.Remedies, err = remediesOf(c); err != nil {
		return fault.Usage(err)
	}
	name := files[0]
	jobs, done, err := whatif.Files{Options: sourceOptions(c), Torch: c.String("torch")}.OpenBoth(files...)
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
	return cmp.Or(err, refusal(jobs))
}

// refusal returns an error if no job can be replayed.
func refusal(jobs []*whatif.Job) error {
	if whatif.Refused(jobs) {
		return errors.New("nothing in the file can be replayed")
	}
	return nil
}
